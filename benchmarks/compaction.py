"""What compaction gains: networks pruned by GraNet in whole filters, against the dense ones in the same run.

    python benchmarks/compaction.py [--device cuda] [--seconds 4] [--json FILE]
    python benchmarks/compaction.py --pretrained [--json FILE]

ResNet-50 (224 x 224 images) and VGG-19 (32 x 32) are pruned to 50 and 70 % by GraNet with pattern="filter", in a
training of a few steps on random images from the first weights on. Weights that are hardly trained say nothing of which
layers can do with less, so every layer loses the same share (distribution="uniform"). The dense network and the
compacted ones then take turns, on the same inputs. On the CPU they run in fp32 and eagerly, one image at a time and 16
at once; on a GPU in bf16, channels last, compiled and captured as CUDA graphs, 128 at once, with widths that are
multiples of 8, as its 16-bit units want them. Medians; the dense network is timed under two names, so what these
differ by is the noise.

With --pretrained, the published networks of single weights: how many of their filters are dead, and what that gives.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import granet
from timing import described, seconds

NETWORKS = {"vgg19": (10, 32, "classifier.weight"), "resnet50": (1000, 224, "fc.weight")}
"""Classes, size of images, and the classifier, whose rows are no filters."""
SPARSITIES = (0.5, 0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=4, help="how long each group of networks takes turns")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="on the CPU")
    parser.add_argument("--pretrained", action="store_true", help="the published networks instead")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    rows = published(options.seconds) if options.pretrained else pruned(device, options.seconds)
    result = {"device": described(device), "torch": torch.__version__, "rows": rows}
    print(f"{result['device']}; torch {torch.__version__}")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def pruned(device: torch.device, duration: float) -> list[dict[str, Any]]:
    rows = []
    gpu = device.type == "cuda"
    for name, (classes, size, head) in NETWORKS.items():
        torch.manual_seed(0)
        dense = granet.create_model(name, num_classes=classes).to(device)
        networks = {"dense": dense}
        counts = {}
        for sparsity in SPARSITIES:
            label = f"{sparsity:.0%} of the filters"
            begin = time.perf_counter()
            zeroed = prune_filters(deepcopy(dense), sparsity, head, torch.randn(4, 3, size, size, device=device))
            example = torch.randn(1, 3, size, size, device=device)
            small = granet.compact(zeroed, example, multiple_of=8 if gpu else 1, tell=None)
            networks[label] = small
            counts[label] = figures(zeroed, small, example)
            print(f"{name}, {label}: pruned and compacted in {time.perf_counter() - begin:.0f} s", flush=True)
        for batch in (128,) if gpu else (1, 16):
            images = torch.randn(batch, 3, size, size, device=device)
            calls = {label: call_of(network, images) for label, network in networks.items()}
            times = take_turns(calls | {"dense again": calls["dense"]}, device, duration)
            for label, milliseconds in times.items():
                ratio = times["dense"] / milliseconds
                rows.append({"network": name, "which": label, "batch": batch, "ms": milliseconds, "ratio": ratio})
                rows[-1] |= counts.get(label, {})
                share = f"   {counts[label]['flops']:.0%} of the FLOPs" if label in counts else ""
                print(
                    f"{name:9} batch {batch:3}   {label:20} {milliseconds:9.3f} ms   {ratio:5.2f}x{share}", flush=True
                )
    return rows


def prune_filters(model: nn.Module, sparsity: float, head: str, images: Tensor, steps: int = 6) -> nn.Module:
    """By GraNet, in whole filters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    method = granet.GraNet(sparsity=sparsity, every=2, prune_end=0.7, pattern="filter", distribution="uniform")
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=steps, exclude=(head,))
    classes = model(images[:2]).shape[1]
    targets = torch.arange(len(images), device=images.device) % classes
    for _ in range(steps):
        functional.cross_entropy(model(images), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    sparsifier.finish()
    sparsifier.remove()
    return model.eval()


def figures(before: nn.Module, after: nn.Module, example: Tensor) -> dict[str, float]:
    """Shares that are left, and the largest difference of outputs."""
    with torch.no_grad():
        whole, less = before(example).double(), after.eval()(example).double()
    return {
        "parameters": count(after) / count(before),
        "flops": granet.flops(after, example).dense / granet.flops(before, example).dense,
        "difference": float((whole - less).abs().max() / whole.abs().max()),
    }


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def call_of(network: nn.Module, images: Tensor) -> Callable[[], object]:
    network = network.eval()
    if not images.is_cuda:
        return lambda: network(images)
    network = deepcopy(network).to(dtype=torch.bfloat16, memory_format=torch.channels_last)
    images = images.to(dtype=torch.bfloat16, memory_format=torch.channels_last)
    compiled = torch.compile(network)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    begin = time.perf_counter()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):
            compiled(images)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        compiled(images)
    print(f"compiled and captured in {time.perf_counter() - begin:.0f} s", flush=True)

    def replay(reads: object = (network, images)) -> None:  # the graph holds addresses, which do not keep these alive
        graph.replay()

    return replay


@torch.inference_mode()
def take_turns(calls: dict[str, Callable[[], object]], device: torch.device, duration: float) -> dict[str, float]:
    """Medians in milliseconds."""
    order, shuffle = list(calls), random.Random(0).shuffle
    rounds: list[dict[str, float]] = []
    end = time.perf_counter() + duration
    while len(rounds) < 8 or (time.perf_counter() < end and len(rounds) < 500):
        shuffle(order)
        rounds.append({label: seconds(calls[label], device) for label in order})
    return {label: 1e3 * statistics.median(times[label] for times in rounds[3:]) for label in calls}


def published(duration: float) -> list[dict[str, Any]]:
    rows = []
    for entry in granet.list_pretrained():
        model = granet.load_pretrained(entry.name)
        example = torch.randn(1, entry.channels, 32, 32)
        small = granet.compact(model, example, tell=None)
        filters, dead = filters_of(model)
        left, _ = filters_of(small)
        calls = {"whole": call_of(model, example), "small": call_of(small, example)}
        times = take_turns(calls, example.device, duration)
        row = {"network": entry.name, "filters": filters, "zero": dead, "gone": filters - left}
        row |= figures(model, small, example) | {"ratio": times["whole"] / times["small"]}
        rows.append(row)
        print(
            f"{entry.name:42} {dead:4} of {filters} filters are zero, {filters - left:4} gone; left: "
            f"{row['parameters']:.1%} of the parameters, {row['flops']:.1%} of the FLOPs; {row['ratio']:.2f}x",
            flush=True,
        )
    return rows


def filters_of(model: nn.Module) -> tuple[int, int]:
    """How many filters its convolutions have, and how many are all zero."""
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Conv2d)]
    return sum(map(len, weights)), sum(int((weight == 0).flatten(1).all(1).sum()) for weight in weights)


if __name__ == "__main__":
    main()

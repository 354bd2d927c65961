"""What zeros pay in inference: sparse VGG-19 and ResNet-50 in granet's runtime, against the best dense engines here.

    python benchmarks/sparse_inference.py --out results/inference/MACHINE.json
    python benchmarks/inference_tables.py   # the tables in README.md and docs/deploy.md, from results/inference

VGG-19 takes images of 32 x 32 (CIFAR), ResNet-50 of 224 x 224. At 90, 95 and 98 % they have masks of two kinds:

- uniform: random, every layer at the sparsity, the first convolution dense;
- granet: as GraNet leaves them, with denser early layers. VGG-19 at 95 and 98 % are the published networks. VGG-19 at
  90 % and ResNet-50 have random masks with the densities of the layers of GraNet's runs on CIFAR, whose logs are in
  results/logs.

For each network, batch and number of threads, all six, in float32 and in 16 bits where the processor computes so, take
turns with every dense engine that is installed (`granet.deploy.bench`, which is also behind `granet bench`); in the
first group of a network uniform masks of fewer zeros as well, which show where zeros begin to pay. Dense engines get
the network that is uniform at 95 %.
Ratios are against the fastest of them, in float32 and in any precision. Leave the machine alone meanwhile; the file is
written after each group. On two cores it takes some forty minutes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

import granet
from granet.deploy.bench import GRANET, GRANET_HALVES, Comparison, Entrant, compare, entrants, machine
from granet.files import write_text
from granet.native import library
from granet.training.environment import environment
from granet.weights import find_layers

NETWORKS = {"vgg19": (10, 32, (1, 64)), "resnet50": (1000, 224, (1, 16))}
"""Classes, size of images, and batches."""
SPARSITIES = (0.9, 0.95, 0.98)
FEWER = (0.5, 0.7, 0.8)
PUBLISHED = {
    ("vgg19", 0.95): "vgg19-cifar10-granet-0.95-from-dense",
    ("vgg19", 0.98): "vgg19-cifar10-granet-0.98-from-dense",
}
RUNS = {
    ("vgg19", 0.9): "cifar10-vgg19-granet-0.9-seed0-08d3c998",
    ("resnet50", 0.9): "cifar100-resnet50_cifar-granet-0.9-seed0-b49d667f",
    ("resnet50", 0.95): "cifar100-resnet50_cifar-granet-0.95-seed0-93101e11",
    ("resnet50", 0.98): "cifar100-resnet50_cifar-granet-0.98-seed0-1e7d2254",
}
"""Whose layers have the densities; all began dense, as the published networks did."""
LOGS = Path(__file__).parents[1] / "results" / "logs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the file of results")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each engine runs in a group")
    options = parser.parse_args()
    library()  # NativeMissing at once, not after minutes
    begun = time.perf_counter()
    result: dict[str, Any] = {"machine": machine(), "commit": environment(torch.device("cpu"))["commit"]}
    result |= {"seconds": options.seconds, "comparisons": []}
    print(", ".join(f"{name} {value}" for name, value in result["machine"].items()), flush=True)
    for name in options.networks:
        _, side, batches = NETWORKS[name]
        models = {(masks, s): sparse(name, masks, s) for masks in ("uniform", "granet") for s in SPARSITIES}
        ours = [Entrant(f"{masks} {s:g}", GRANET, model) for (masks, s), model in models.items()]
        ours += [Entrant(f"{masks} {s:g}, 16 bit", GRANET_HALVES, model) for (masks, s), model in models.items()]
        dense = [one for one in entrants(models["uniform", 0.95]) if not one.candidate.startswith(GRANET)]
        fewer = [Entrant(f"uniform {s:g}", GRANET, sparse(name, "uniform", s)) for s in FEWER]
        for batch in batches:
            images = torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
            for threads in options.threads:
                found = compare([*fewer, *ours, *dense], (images,), threads, options.seconds)
                fewer = []
                result["comparisons"].append({"network": name, **found.record()})
                show(name, found)
                options.out.parent.mkdir(parents=True, exist_ok=True)
                write_text(options.out, json.dumps(result, indent=1) + "\n")
    print(f"{time.perf_counter() - begun:.0f} s")


def sparse(name: str, masks: str, sparsity: float) -> nn.Module:
    """In evaluation mode."""
    if masks == "granet" and (published := PUBLISHED.get((name, sparsity))):
        return granet.load_pretrained(published)
    torch.manual_seed(0)
    model = granet.create_model(name, num_classes=NETWORKS[name][0]).eval()
    shapes = {layer.name: layer.weight for layer in find_layers(model)}
    densities = dict.fromkeys(shapes, 1 - sparsity) | {next(iter(shapes)): 1.0}
    if masks == "granet":
        log = json.loads((LOGS / f"{RUNS[name, sparsity]}.json").read_text(encoding="utf-8"))
        densities = {layer["name"]: layer["active"] / layer["weights"] for layer in log["layers"]}
    draw(model, densities)
    return model


def draw(model: nn.Module, densities: Mapping[str, float]) -> None:
    """Zero all but that share of each weight, at random; what is left grows, so that outputs keep their size."""
    for name, density in densities.items():
        weight = model.get_parameter(name).data
        kept = torch.randperm(weight.numel())[: round(density * weight.numel())]
        mask = torch.zeros(weight.numel()).index_fill_(0, kept, density**-0.5)
        weight.mul_(mask.view_as(weight))


def show(name: str, found: Comparison) -> None:
    print(f"{name}, batch {found.batch}, {found.threads} threads", flush=True)
    for one in found.results:
        ratios = [found.ratio(one, precision) for precision in ("float32", None)]
        said = "  ".join(f"{ratio:6.2f}x" for ratio in ratios if ratio is not None)
        ms = f"{1e3 * one.times.median:10.3f} ms (least {1e3 * one.times.least:.3f}, spread {one.times.spread:.0%})"
        print(f"  {one.label:18} {ms:45} {said}   {one.precision}, differs by {one.difference:.0e}", flush=True)
    for label, why in found.left_out.items():
        print(f"  without {label}: {why}", flush=True)


if __name__ == "__main__":
    main()

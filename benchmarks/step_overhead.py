"""What sparse training adds to an ordinary training step: ResNet-20, batch 128, in the same run.

    python benchmarks/step_overhead.py [--device cuda] [--repeats 15] [--json]

Two equal networks take turns, one trained dense and one under GraNet masks (90 % sparse), with steps on which the masks
do not change: that is all but one of some thousand. Each pair of neighbouring steps gives one ratio; the median counts.
`benchmarks/mask_update.py` measures the remaining step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional

import granet
from granet.models import create_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    device = torch.device(options.device)

    dense, sparse = training_step(device, is_sparse=False), training_step(device, is_sparse=True)
    dense_times, sparse_times = [], []
    for repeat in range(options.repeats + 2):
        pair = seconds(dense, device), seconds(sparse, device)
        if repeat >= 2:
            dense_times.append(pair[0])
            sparse_times.append(pair[1])
    ratios = [s / d for s, d in zip(sparse_times, dense_times, strict=True)]
    result = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "dense_ms": 1000 * statistics.median(dense_times),
        "sparse_ms": 1000 * statistics.median(sparse_times),
        "overhead": statistics.median(ratios) - 1,
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"ResNet-20, batch 128; {result['device']}; torch {result['torch']}")
    print(f"dense step   {result['dense_ms']:9.2f} ms")
    print(f"sparse step  {result['sparse_ms']:9.2f} ms   overhead {result['overhead']:+.1%}")


def training_step(device: torch.device, is_sparse: bool) -> Callable[[], None]:
    torch.manual_seed(0)
    model = create_model("resnet20", num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    if is_sparse:
        method = granet.GraNet(sparsity=0.9, initial_sparsity=0.9, every=10**6)
        granet.sparsify(model, optimizer, method, total_steps=10**8)
    images = torch.randn(128, 3, 32, 32, device=device)
    labels = torch.randint(10, (128,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

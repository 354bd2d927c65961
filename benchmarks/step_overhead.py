"""What sparse training adds to an ordinary training step: ResNet-20, batch 128, in the same run.

    python benchmarks/step_overhead.py [--device cuda] [--repeats 60] [--json]

Three equal networks take turns in shuffled order: two trained dense and one under GraNet masks (90 % sparse), with
steps on which the masks do not change: that is all but one of some thousand. Each round gives one ratio of the sparse
step and one of the second dense step to the first; the median counts. The second dense network is the control: its
overhead is zero, so what is measured for it is the noise. `benchmarks/mask_update.py` measures the remaining step.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable

import torch
from torch.nn import functional

import granet
from granet.models import create_model
from timing import described, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    device = torch.device(options.device)

    steps = {name: training_step(device, is_sparse=name == "sparse") for name in ("dense", "control", "sparse")}
    order, shuffle = list(steps), random.Random(0).shuffle
    rounds = []
    for _ in range(options.repeats + 2):
        shuffle(order)
        rounds.append({name: seconds(steps[name], device) for name in order})
    rounds = rounds[2:]  # after the warm-up
    result = {
        "device": described(device),
        "torch": torch.__version__,
        **{f"{name}_ms": 1000 * statistics.median(times[name] for times in rounds) for name in steps},
        "overhead": statistics.median(times["sparse"] / times["dense"] for times in rounds) - 1,
        "control": statistics.median(times["control"] / times["dense"] for times in rounds) - 1,
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"ResNet-20, batch 128; {result['device']}; torch {result['torch']}")
    print(f"dense step   {result['dense_ms']:9.2f} ms")
    print(f"dense again  {result['control_ms']:9.2f} ms   overhead {result['control']:+.1%} (the control: noise)")
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


if __name__ == "__main__":
    main()

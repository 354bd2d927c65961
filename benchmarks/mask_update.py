"""One GraNet mask update over ResNet-50's weights: ours against the usual way, in the same run.

    python benchmarks/mask_update.py [--device cuda] [--repeats 5] [--json]

The usual way is what published implementations do: join all |w| and take a sorted top-k for the global threshold, then
in every layer two full sorts, one to drop and one to grow. Ours is the whole of what an update step adds to a training
step: keeping the dense gradients, masking them, selecting, and masking weights and optimizer state. Both start from the
same weights, gradients and masks, and no garbage is collected while the clock runs, as in ``timeit``. On a GPU ours
runs with every wait of the host for the device made an error.

Extra memory is the peak above what was held before, as a multiple of the bytes of the weights: on a GPU what PyTorch
allocated; on Linux resident memory, in a process of its own whose C allocator returns freed memory at once.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import granet
from granet.models import create_model
from granet.sparsifier import steps_of
from timing import described

RETURN_FREED_MEMORY = "MALLOC_MMAP_THRESHOLD_"
"""glibc: blocks of this many bytes or more are mapped one by one, and unmapped when freed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    result = measure(torch.device(options.device), options.repeats)
    if options.device == "cpu" and RETURN_FREED_MEMORY not in os.environ:
        result |= {key: value for key, value in remeasured().items() if key.endswith("extra_memory")}
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['layers']} layers, {result['weights']:,} weights; {result['device']}; torch {result['torch']}")
    print(f"{'':10}{'ms':>10}{'extra memory / weights':>26}")
    for name in ("ours", "usual"):
        print(f"{name:10}{result[f'{name}_ms']:10.1f}{result[f'{name}_extra_memory']:26.2f}")
    print(f"{result['speedup']:.1f} times faster")


def measure(device: torch.device, repeats: int) -> dict[str, Any]:
    torch.manual_seed(0)
    steps = 4 * repeats + 8
    model = create_model("resnet50", num_classes=1000).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    method = granet.GraNet(sparsity=0.9, initial_sparsity=0.5, every=1, prune_end=steps // 2)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=steps)
    weights = [layer.weight for layer in sparsifier.layers.values()]

    seconds: dict[str, list[float]] = {"ours": [], "usual": []}
    memory = {"ours": 0, "usual": 0}
    for repeat in range(repeats + 1):
        masks = [mask.clone() for mask in sparsifier.masks.values()]
        for weight, mask in zip(weights, masks, strict=True):  # as trained since the last update: none active at zero
            weight.data.copy_(0.02 * torch.randn_like(weight) * mask)
            weight.grad = torch.randn_like(weight)
        values = [weight.detach().clone() for weight in weights]
        gradients = [weight.grad.clone() for weight in weights if weight.grad is not None]
        clock = granet.Clock(sparsifier.step + 1, steps)
        calls: dict[str, Callable[[], None]] = {
            "ours": partial(our_update, sparsifier),
            "usual": partial(usual_update, values, gradients, masks, method.target(clock), method.regrow_ratio(clock)),
        }
        for name, call in calls.items():
            forbid_waiting = device.type == "cuda" and name == "ours" and repeat > 1  # the first two look for leaks
            gc.disable()
            taken, memory[name] = run(call, device, forbid_waiting)
            gc.enable()
            if repeat > 0:
                seconds[name].append(taken)
        if abs(sparsifier.sparsity - method.target(clock)) > 1e-7:
            raise AssertionError(f"asked {method.target(clock)}, got {sparsifier.sparsity}")

    size = sum(weight.numel() * weight.element_size() for weight in weights)
    ours, usual = statistics.median(seconds["ours"]), statistics.median(seconds["usual"])
    return {
        "weights": sum(weight.numel() for weight in weights),
        "layers": len(weights),
        "device": described(device),
        "torch": torch.__version__,
        "ours_ms": 1000 * ours,
        "usual_ms": 1000 * usual,
        "speedup": usual / ours,
        "ours_extra_memory": memory["ours"] / size,
        "usual_extra_memory": memory["usual"] / size,
    }


def our_update(sparsifier: granet.Sparsifier) -> None:
    steps = steps_of(sparsifier)
    steps.before()
    steps.taken()


def usual_update(
    weights: list[Tensor], gradients: list[Tensor], masks: list[Tensor], target: float, ratio: float
) -> None:
    everything = torch.cat([weight.abs().flatten() for weight in weights])
    keep = int(len(everything) * (1 - target))
    threshold = torch.topk(everything, keep, sorted=True).values[-1].item()
    del everything
    for weight, gradient, mask in zip(weights, gradients, masks, strict=True):
        mask &= weight.abs() >= threshold
        weight.mul_(mask)  # what is pruned is zero, whether it regrows or not
        flat = mask.view(-1)
        active = int(flat.sum().item())
        dropped = math.ceil(ratio * active)
        order = torch.sort(weight.abs().flatten()).indices
        flat[order[: flat.numel() - active + dropped]] = False
        order = torch.sort((gradient.abs() * ~mask).flatten(), descending=True).indices
        flat[order[:dropped]] = True
        weight.mul_(mask)


def run(call: Callable[[], None], device: torch.device, forbid_waiting: bool) -> tuple[float, int]:
    """Seconds, and peak bytes above what was held."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        torch.cuda.set_sync_debug_mode("error" if forbid_waiting else "default")
        start = time.perf_counter()
        call()
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        return time.perf_counter() - start, torch.cuda.max_memory_allocated() - held
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    held = _resident("VmRSS")
    start = time.perf_counter()
    call()
    return time.perf_counter() - start, _resident("VmHWM") - held


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def remeasured() -> dict[str, float]:
    """The results of a process in which resident memory is memory in use."""
    command = [sys.executable, __file__, "--device", "cpu", "--repeats", "2", "--json"]
    output = subprocess.run(command, env=os.environ | {RETURN_FREED_MEMORY: "65536"}, check=True, capture_output=True)
    return dict(json.loads(output.stdout))


if __name__ == "__main__":
    main()

"""One GraNet mask update over ResNet-50's weights: ours against the usual way, in the same run.

    python benchmarks/mask_update.py [--device cuda] [--repeats 5] [--json]

The usual way is what published implementations do: join all |w| and take a sorted top-k for the global threshold, then
in every layer two full sorts, one to drop and one to grow. Ours is the whole of what an update step adds to a training
step: keeping the dense gradients, masking them, selecting, and masking weights and momentum. Both start from the same
weights, gradients and masks. Extra memory is the peak above what was held before the update.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import granet
from granet.models import create_model

STEPS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    device = torch.device(options.device)

    torch.manual_seed(0)
    model = create_model("resnet50", num_classes=1000).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    method = granet.GraNet(sparsity=0.9, initial_sparsity=0.5, every=1, end=STEPS // 2)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
    weights = [layer.weight for layer in sparsifier.layers.values()]
    size = sum(weight.numel() * weight.element_size() for weight in weights)

    ours, usual = Measured(device), Measured(device)
    for repeat in range(options.repeats + 1):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        before = [mask.clone() for mask in sparsifier.masks.values()]
        values = [weight.detach().clone() for weight in weights]
        gradients = [weight.grad.clone() for weight in weights if weight.grad is not None]
        clock = granet.Clock(sparsifier.step + 1, STEPS)
        target, ratio = method.target(clock), method.regrow_ratio(clock)

        warm_up = repeat == 0
        ours.run(lambda: our_update(sparsifier), record=not warm_up, forbid_waiting=True)
        if not warm_up:
            usual.run(lambda: usual_update(values, gradients, before, target, ratio), record=True)
    achieved = abs(sparsifier.sparsity - target)
    assert achieved < 1e-7, f"asked {target}, got {sparsifier.sparsity}"

    result = {
        "weights": sum(weight.numel() for weight in weights),
        "layers": len(weights),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "ours_ms": 1000 * ours.seconds,
        "usual_ms": 1000 * usual.seconds,
        "speedup": usual.seconds / ours.seconds,
        "ours_extra_memory": ours.bytes / size,
        "usual_extra_memory": usual.bytes / size,
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['layers']} layers, {result['weights']:,} weights; {result['device']}; torch {result['torch']}")
    print(f"{'':10}{'ms':>10}{'extra memory / weights':>26}")
    for name in ("ours", "usual"):
        print(f"{name:10}{result[f'{name}_ms']:10.1f}{result[f'{name}_extra_memory']:26.2f}")
    print(f"{result['speedup']:.1f} times faster")


class Measured:
    """Median seconds and peak extra bytes of calls."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._seconds, self._bytes = device, list[float](), list[int]()

    def run(self, call: Callable[[], None], record: bool, forbid_waiting: bool = False) -> None:
        self._synchronize()
        held = self._held()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.set_sync_debug_mode("error" if forbid_waiting and record else "default")
        start = time.perf_counter()
        call()
        if self._device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")
        self._synchronize()
        if record:
            self._seconds.append(time.perf_counter() - start)
            self._bytes.append(self._peak() - held)

    @property
    def seconds(self) -> float:
        return statistics.median(self._seconds)

    @property
    def bytes(self) -> int:
        return max(self._bytes)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _held(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated()
        Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
        return _status("VmRSS")

    def _peak(self) -> int:
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else _status("VmHWM")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def our_update(sparsifier: granet.Sparsifier) -> None:
    sparsifier.mask_gradients()
    sparsifier.advance()


def usual_update(
    weights: list[Tensor], gradients: list[Tensor], masks: list[Tensor], target: float, ratio: float
) -> None:
    everything = torch.cat([weight.abs().flatten() for weight in weights])
    keep = int(len(everything) * (1 - target))
    threshold = torch.topk(everything, keep, sorted=True).values[-1].item()
    del everything
    for weight, gradient, mask in zip(weights, gradients, masks, strict=True):
        mask &= weight.abs() >= threshold
        flat = mask.view(-1)
        active = int(flat.sum().item())
        dropped = math.ceil(ratio * active)
        order = torch.sort(weight.abs().flatten()).indices
        flat[order[: flat.numel() - active + dropped]] = False
        order = torch.sort((gradient.abs() * ~mask).flatten(), descending=True).indices
        flat[order[:dropped]] = True
        weight.mul_(mask)


if __name__ == "__main__":
    main()

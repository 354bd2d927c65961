"""What a training step costs, dense and with GraNet, alone and with several runs side by side, in one run.

    python benchmarks/train_step.py [--models vgg19:5 resnet50_cifar:2 resnet20:8] [--device cuda] [--no-compile]

A figure is the wall time of whole epochs divided by their steps, so it holds everything that training does: shuffled,
cropped and mirrored batches, forward, backward, masked SGD, mask updates and the host's own work. Images are random, of
CIFAR's size, in batches of 128. Dense and sparse epochs take turns; the median of each is printed. `vgg19:5` also
trains five copies of the sparse run at the same time, each on a stream of one process, and gives milliseconds for each
model's step.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from granet.data.dataset import ImageSet
from granet.training import EpochRecord, Recipe, Training
from timing import seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["vgg19:5", "resnet50_cifar:2", "resnet20:8"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=300, help="steps of an epoch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each model instead of a table")
    options = parser.parse_args()
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    if not options.json:
        print(f"{name}; torch {torch.__version__}; {options.precision}; compiled: {options.compile}; ms per step")
        print(f"{'':16}{'dense':>9}{'GraNet':>9}{'over dense':>12}{'side by side':>14}{'ms per model-step':>20}")
    for model in options.models:
        result = measure(model, device, options) | {"device": name, "torch": torch.__version__}
        if options.json:
            print(json.dumps(result), flush=True)
        else:
            over = f"{result['granet_ms'] / result['dense_ms'] - 1:+.1%}"
            packed = f"{result['streams']:14}{result['packed_ms']:20.3f}" if result["streams"] else ""
            print(
                f"{result['model']:16}{result['dense_ms']:9.3f}{result['granet_ms']:9.3f}{over:>12}{packed}", flush=True
            )


def measure(model: str, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    model, _, streams = model.partition(":")
    copies = int(streams or 0)
    images = random_images(options.steps * options.batch_size)
    recipe = Recipe(
        model=model,
        data=images.name,
        method_fields={"sparsity": 0.9, "initial_sparsity": 0.5, "every": 1000, "prune_end": "50%"},
        epochs=1000,
        batch_size=options.batch_size,
        crop=4,
        flip=True,
        precision=options.precision,
        compile=options.compile,
    )
    runs = {name: epochs(one, images, device) for name, one in (("dense", recipe.dense_twin()), ("granet", recipe))}
    for run in runs.values():
        next(run)  # kernels are chosen in the first epoch
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(options.repeats):
        for name in sorted(runs, reverse=bool(repeat % 2)):
            times[name].append(seconds(partial(next, runs[name]), device))
    runs.clear()
    result = {f"{name}_ms": 1000 * statistics.median(taken) / options.steps for name, taken in times.items()}
    packed = side_by_side(copies, recipe, images, device, options) if copies else None
    return {"model": model, **result, "streams": copies, "packed_ms": packed, "compile": options.compile}


def side_by_side(
    copies: int, recipe: Recipe, images: ImageSet, device: torch.device, options: argparse.Namespace
) -> float:
    with ThreadPoolExecutor(copies) as pool:
        workers = [Worker(replace(recipe, seed=seed), images, device) for seed in range(copies)]
        together = lambda: list(pool.map(Worker.epoch, workers))  # noqa: E731
        together()
        taken = statistics.median(seconds(together, device) for _ in range(options.repeats))
    return 1000 * taken / options.steps / copies


class Worker:
    """A run on a stream of its own."""

    def __init__(self, recipe: Recipe, images: ImageSet, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        with self._context():
            self._epochs = epochs(recipe, images, device)

    def epoch(self) -> None:
        with self._context():
            next(self._epochs)

    def _context(self) -> Any:
        return torch.cuda.stream(self._stream) if self._stream is not None else nullcontext()


def epochs(recipe: Recipe, images: ImageSet, device: torch.device) -> Iterator[EpochRecord]:
    return Training(recipe, images, device=device).epochs()


def random_images(count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)

    def part(size: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randint(256, (size, 3, 32, 32), generator=generator, dtype=torch.uint8)
        return images, torch.randint(10, (size,), generator=generator)

    few, few_labels = part(16)
    return ImageSet(
        "random", *part(count), few[:0], few_labels[:0], few, few_labels, 10, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    )


if __name__ == "__main__":
    main()

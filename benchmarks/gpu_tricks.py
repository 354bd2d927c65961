"""What each trick of the GPU step gains: it is switched off, the others stay on, all take turns in one run.

    python benchmarks/gpu_tricks.py [--models vgg19:5 resnet50_cifar:2 resnet20:8] [--json FILE]

A figure is wall time per model-step of GraNet's training (benchmarks/train_step.py), alone on the GPU and side by side
with copies of itself. The gain of a trick is how much longer a step takes without it: medians over rounds in which all
variants take turns. Each variant has a process of its own, since compiled code is shared within one; the first of a
model compiles before the others, which find its choices of kernels in the cache.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from granet.training import Recipe
from timing import seconds
from train_step import Worker, epochs, random_images

TRICKS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "narrow_conv": ("step", "NarrowConvolutions", nullcontext),
    "side_stream": ("step", "has_gpu_to_itself", lambda: False),
    "bfloat16_weights": ("loop", "rounded_weights", lambda model, images: None),
}
"""Where granet.training uses the trick, by which name, and what stands there without it."""
NONE = "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["vgg19:5", "resnet50_cifar:2", "resnet20:8"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=200, help="steps of an epoch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--variant", nargs=2, help=argparse.SUPPRESS)  # a model and what it goes without
    options = parser.parse_args()
    if options.variant:
        answer(*options.variant, options)
        return
    name = torch.cuda.get_device_name(options.device) if options.device != "cpu" else "cpu"
    whole = {model: Variant(model, NONE, options) for model in options.models}
    parts = {}
    for model, variant in whole.items():
        variant.wait()
        parts[model] = {trick: Variant(model, trick, options) for trick in TRICKS}
    for variant in (variant for several in parts.values() for variant in several.values()):
        variant.wait()
    print(f"{name}; torch {torch.__version__}; ms per model-step with all tricks, and how much longer without one")
    figures: list[dict[str, Any]] = []
    for model in options.models:
        found = compare(model, {NONE: whole[model]} | parts[model], options.rounds)
        for figure in found:
            place = f"{figure['model']:16}{figure['runs']:4}{figure['without']:>20}"
            print(f"{place}{figure['ms']:9.3f}{figure['gain']:+8.1%}", flush=True)
        figures += found
        if options.json:
            text = json.dumps({"device": name, "torch": torch.__version__, "figures": figures}, indent=1)
            options.json.write_text(text + "\n")


class Variant:
    """A process that trains a model without one trick, and only while it is asked to."""

    def __init__(self, model: str, without: str, options: argparse.Namespace) -> None:
        self._name = f"{model} without {without}"
        self._began = time.monotonic()
        own = ["--variant", model, without, "--device", options.device, "--steps", str(options.steps)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *own], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def wait(self) -> None:
        """Until it has compiled."""
        if (said := self._hear()) != "compiled":
            raise SystemExit(f"{self._name}: said {said!r}")
        self._tell("compiled")

    def build(self) -> None:
        """What it will train: with no other at work, since kernels are chosen by measurement."""
        self._ask("build")
        self._tell("built")

    def train(self) -> list[float]:
        """An epoch alone, and one of each copy side by side: ms per model-step."""
        return self._ask("train")

    def _ask(self, what: str) -> list[float]:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return list(json.loads(self._hear()))

    def _hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name}: ended with code {self._process.wait()}")
        return line.strip()

    def _tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {self._name}: {what}", file=sys.stderr, flush=True)

    def end(self) -> None:
        self._process.communicate()


def compare(model: str, variants: dict[str, Variant], rounds: int) -> list[dict[str, Any]]:
    for variant in variants.values():
        variant.build()
    taken: dict[str, list[list[float]]] = {name: [] for name in variants}
    for turn in range(rounds):
        for name in sorted(variants, reverse=bool(turn % 2)):
            taken[name].append(variants[name].train())
    for variant in variants.values():
        variant.end()
    model, _, copies = model.partition(":")
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in taken.items()}
    return [
        {"model": model, "runs": runs, "without": name, "ms": medians[NONE][place], "gain": ms[place] / base - 1}
        for place, runs in enumerate((1, int(copies)))
        for base in [medians[NONE][place]]
        for name, ms in medians.items()
        if name != NONE
    ]


def answer(model: str, without: str, options: argparse.Namespace) -> None:
    """In the process of a variant: compile, and then train when told to."""
    if without != NONE:
        module, name, instead = TRICKS[without]
        setattr(importlib.import_module(f"granet.training.{module}"), name, instead)
    device = torch.device(options.device)
    model, _, copies = model.partition(":")
    images = random_images(options.steps * 128)
    recipe = Recipe(
        model=model,
        data=images.name,
        method_fields={"sparsity": 0.9, "initial_sparsity": 0.5, "every": 1000, "prune_end": "50%"},
        epochs=1000,
        crop=4,
        flip=True,
        precision="bfloat16" if device.type == "cuda" else "float32",
        compile=device.type == "cuda",
    )

    def build(count: int) -> Callable[[], Any]:
        if count == 1:
            alone = epochs(recipe, images, device)
            next(alone)
            return partial(next, alone)
        workers = [Worker(replace(recipe, seed=seed), images, device) for seed in range(count)]
        pool = ThreadPoolExecutor(count)
        together = lambda: list(pool.map(Worker.epoch, workers))  # noqa: E731
        together()
        return together

    counts = (1, int(copies))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(compile_only, build, device).result()
    print("compiled", flush=True)
    trainings: list[Callable[[], Any]] = []
    for line in sys.stdin:
        if line.strip() == "build":
            trainings = [build(count) for count in counts]
            print("[]", flush=True)
        else:
            taken = [seconds(train, device) for train in trainings]
            ms = [1000 * time / options.steps / count for time, count in zip(taken, counts, strict=True)]
            print(json.dumps(ms), flush=True)


def compile_only(build: Callable[[int], Any], device: torch.device) -> None:
    """Beside others on the GPU. In a thread of its own, which takes cuDNN's choices of kernels with it."""
    from granet.training import graph

    tried, graph.kernels_tried = graph.kernels_tried, nullcontext
    build(1)
    if device.type == "cuda":
        with torch.cuda.stream(torch.cuda.Stream(device)):
            build(1)
    graph.kernels_tried = tried


if __name__ == "__main__":
    main()

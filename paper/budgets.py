"""Layer budgets: how layers share the active weights, as printed in the paper, by a formula, and as learned."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from granet.data.cifar import CIFAR10, CIFAR100, SIDE
from granet.flop_counting import FlopsReport, flops
from granet.models import create_model
from granet.report.budget import fixed_counts
from granet.training.rundir import run_name
from paper.results import read_log
from paper.tables import Cell, read_printed

PRINTED = {
    "granet_si0": "GraNet (s_i=0)",
    "granet_si05": "GraNet (s_i=0.5)",
    "str": "STR",
    "uniform": "uniform",
    "erk": "ERK",
    "snfs": "SNFS",
    "vd": "VD",
    "gs": "GS",
}
"""Columns of the paper's table and their names."""
CLASSES = {data.name: data.classes for data in (CIFAR10, CIFAR100)}


@dataclass(frozen=True)
class Budget:
    """Active weights of each layer, in the order of the report's rows, for one run or for each of several."""

    name: str
    report: FlopsReport
    active: tuple[tuple[int, ...], ...]
    printed: tuple[str, ...] = ()
    """The sparsity of each layer in percent as the paper has it, from which ``active`` follows by rounding."""

    @property
    def percents(self) -> Sequence[str]:
        """The sparsity of each layer in percent: as printed, or the mean over the runs."""
        if self.printed:
            return self.printed
        runs = zip(*self.active, strict=True)
        means = [statistics.mean(counts) for counts in runs]
        return [percent(1 - mean / row.weights) for row, mean in zip(self.report.rows, means, strict=True)]

    def sparsity(self, *without: str) -> float:
        """The sparsity of all layers together, without those named."""
        chosen = [place for place, row in enumerate(self.report.rows) if row.name not in without]
        weights = sum(self.report.rows[place].weights for place in chosen)
        return 1 - statistics.mean(sum(counts[place] for place in chosen) for counts in self.active) / weights

    @property
    def flops(self) -> float:
        """FLOPs of a forward pass as a share of the dense network's; the mean over the runs."""
        names = [str(row.parameter) for row in self.report.rows]
        return statistics.mean(
            self.report.with_active(dict(zip(names, counts, strict=True))).ratio for counts in self.active
        )


def percent(share: float) -> str:
    """A share as the paper writes it."""
    return f"{100 * share:.2f}"


@cache
def counted(model: str, classes: int, side: int) -> FlopsReport:
    """One forward pass of a network on an image of that size."""
    with torch.device("meta"):
        return flops(create_model(model, num_classes=classes), torch.zeros(1, 3, side, side))


def printed_rows() -> list[dict[str, str]]:
    """The table as the paper prints it: ResNet-50 on ImageNet at 90 %, first all layers and all convolutions."""
    return read_printed("budgets")


def resnet50() -> FlopsReport:
    """The network of that table."""
    return counted("resnet50", 1000, 224)


def printed_budgets() -> dict[str, Budget]:
    """Each column of that table, from the sparsity that it gives to each layer."""
    report = resnet50()
    layers = {row["layer"]: row for row in printed_rows()}
    found = {}
    for column, name in PRINTED.items():
        texts = tuple(layers[row.name][column] for row in report.rows)
        active = (round(row.weights * (1 - float(text) / 100)) for row, text in zip(report.rows, texts, strict=True))
        found[column] = Budget(name, report, (tuple(active),), texts)
    return found


def fixed_budgets(report: FlopsReport, total: int) -> list[Budget]:
    """ERK and uniform with exactly ``total`` active weights."""
    shared = fixed_counts([row.shape for row in report.rows], total)
    return [Budget(name, report, (tuple(counts),)) for name, counts in shared.items()]


def learned_budget(cell: Cell, seeds: Sequence[int], results: Path) -> Budget | None:
    """The final budget of a cell's runs, from their logs; None if there are none."""
    report = counted(cell.model, CLASSES[cell.data], SIDE)
    runs = (run_name(cell.recipes(seed)[-1]) for seed in seeds)
    found = (read_log(results, run, partial(_active, report)) for run in runs)
    active = tuple(counts for counts in found if counts is not None)
    return Budget(cell.row, report, active) if active else None


def _active(report: FlopsReport, log: Mapping[str, Any]) -> tuple[int, ...]:
    """Active weights at the end of a run. The oldest logs have them only in the records of mask updates."""
    layers = log["layers"]
    last = log["updates"][-1]["active"] if log["updates"] else ()
    counts = dict(zip((layer["name"] for layer in layers), last, strict=False))
    counts |= {layer["name"]: layer["active"] for layer in layers if "active" in layer}
    for row in report.rows:
        if type(count := counts[str(row.parameter)]) is not int or not 0 <= count <= row.weights:
            raise ValueError(f"active={count!r} of {row.parameter}: must be from 0 to its {row.weights} weights")
    return tuple(counts[str(row.parameter)] for row in report.rows)

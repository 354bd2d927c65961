"""Curves over epochs: drawing them on given axes, all runs in one, and describing them in words. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from granet.drawing import MUTED
from granet.report.draw import line_legend
from granet.report.labels import ShownRun
from granet.report.read import ReportedRun
from granet.report.words import diverged, share
from granet.training.records import EpochRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDE = 1000
"""From this ratio on, losses are shown on a logarithmic scale."""


@dataclass(frozen=True)
class Curves:
    """One figure of curves. `paint` draws those of all runs; `last` tells in words what one shows at its right end."""

    title: str
    caption: str
    paint: Callable[[Axes, Sequence[ShownRun]], None]
    last: Callable[[EpochRecord], str]


def curves_of(runs: Sequence[ReportedRun]) -> tuple[Curves, ...]:
    """The figures that these runs have something to show in: those of FLOPs need a run that recorded them."""
    some = any(counted(record) for run in runs for record in run.records)
    return _ALWAYS + _FLOPS if some else _ALWAYS


def _accuracy(axes: Axes, runs: Sequence[ShownRun]) -> None:
    thin = 1.0 if len(runs) <= 4 else 0.8
    for run in runs:
        _curve(axes, run, lambda record: 100 * record.train_accuracy, linestyle=":", linewidth=thin)
        _curve(axes, run, lambda record: _percent(record.val_accuracy), linestyle="--", linewidth=thin)
        _curve(axes, run, lambda record: 100 * record.test_accuracy, linewidth=1.8 * thin)
    by_epoch(axes, "accuracy (%)")
    line_legend(axes, {"test": "-", "validation": "--", "train": ":"})


def _loss(axes: Axes, runs: Sequence[ShownRun]) -> None:
    finite = [record.train_loss for run in runs for record in run.records if math.isfinite(record.train_loss)]
    for run in runs:
        _curve(axes, run, _finite_loss)
        before = [record for record in run.records if record.epoch < (diverged(run) or 0)]
        if before:  # where the curve ends
            axes.plot(before[-1].epoch, before[-1].train_loss, "x", color=run.colour, markersize=8)
    by_epoch(axes, "training loss")
    if not finite:
        axes.text(0.5, 0.5, "no finite loss", transform=axes.transAxes, ha="center", color=MUTED)
    elif min(finite) > 0 and max(finite) > WIDE * min(finite):
        axes.set(yscale="log", ylabel="training loss, logarithmic")


def _finite_loss(record: EpochRecord) -> float:
    return record.train_loss if math.isfinite(record.train_loss) else math.nan


def _sparsity(axes: Axes, runs: Sequence[ShownRun]) -> None:
    for run, width in zip(runs, _widths(len(runs)), strict=True):
        _curve(axes, run, lambda record: 100 * record.target_sparsity, linestyle=":", linewidth=3)
        _curve(axes, run, lambda record: 100 * record.sparsity, linewidth=width)
    by_epoch(axes, "sparsity (%)")
    axes.set_ylim(-3, 103)
    line_legend(axes, {"achieved": "-", "asked": ":"})


def _learning_rate(axes: Axes, runs: Sequence[ShownRun]) -> None:
    for run, width in zip(runs, _widths(len(runs)), strict=True):
        _curve(axes, run, lambda record: record.lr, linewidth=width, drawstyle="steps-pre")
    by_epoch(axes, "learning rate")
    axes.set_yscale("log")


def _flops(axes: Axes, runs: Sequence[ShownRun]) -> None:
    for run in runs:
        _curve(axes, run, lambda record: _percent(record.flops if counted(record) else None))
    by_epoch(axes, "FLOPs of a forward pass (% of dense)")
    axes.set_ylim(-3, 103)


def _train_flops(axes: Axes, runs: Sequence[ShownRun]) -> None:
    for run in runs:
        _curve(axes, run, lambda record: _percent(record.train_flops))
    by_epoch(axes, "FLOPs spent (% of dense training)")
    axes.set_ylim(bottom=0)


_ALWAYS = (
    Curves(
        "Accuracy",
        "Accuracy after each epoch: test solid, validation dashed, training (running mean) dotted.",
        _accuracy,
        lambda record: f"test {share(record.test_accuracy, 2)}",
    ),
    Curves(
        "Training loss",
        "Mean training loss of each epoch; a cross where it stops being a finite number.",
        _loss,
        lambda record: f"{record.train_loss:.4g}",
    ),
    Curves(
        "Sparsity",
        "Zeros among the sparsified weights: achieved solid, asked by the schedule dotted.",
        _sparsity,
        lambda record: share(record.sparsity, 2),
    ),
    Curves(
        "Learning rate",
        "Learning rate of each epoch's last step, on a logarithmic scale.",
        _learning_rate,
        lambda record: f"{record.lr:.4g}",
    ),
)
_FLOPS = (
    Curves(
        "FLOPs during training",
        "FLOPs of a forward pass through the network as it is after each epoch, as a share of the dense network's.",
        _flops,
        lambda record: share(record.flops, 1) if counted(record) else "not recorded",
    ),
    Curves(
        "Training FLOPs so far",
        "FLOPs that training has taken up to each epoch, as a share of a whole dense training without stretch.",
        _train_flops,
        lambda record: share(record.train_flops, 1) if counted(record) else "not recorded",
    ),
)


def counted(record: EpochRecord) -> bool:
    """Whether FLOPs were recorded. Older runs have neither figure, and `flops` reads as its default there."""
    return record.train_flops is not None


def _curve(axes: Axes, run: ShownRun, value: Callable[[EpochRecord], float], **style: Any) -> None:
    marker = "o" if len(run.records) == 1 else ""  # a line needs two points
    epochs = [record.epoch for record in run.records]
    axes.plot(epochs, [value(record) for record in run.records], color=run.colour, marker=marker, markersize=4, **style)


def _widths(count: int) -> list[float]:
    """Of lines that may lie on one another: the first show as a rim of the last."""
    return [1.6 + 2.0 * (count - 1 - index) / max(count - 1, 1) for index in range(count)]


def _percent(value: float | None) -> float:
    return math.nan if value is None else 100 * value


def by_epoch(axes: Axes, ylabel: str) -> None:
    """Name the axes of curves whose points are epochs."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="epoch", ylabel=ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid()

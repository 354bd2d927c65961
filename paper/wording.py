"""How pages of results say things."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from paper.compare import Comparison

NAMES = {"vgg19": "VGG-19", "resnet50": "ResNet-50", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def in_full(model: str, data: str) -> str:
    """The names of a network and a data set as the paper writes them."""
    return f"{NAMES[model]}, {NAMES[data]}"


def heading(table: str) -> str:
    """What stands at the top of every page."""
    return f"# {table}\n\nMade by `python -m paper {table} --write` from the files in `results/`; do not edit.\n"


def in_words(one: Comparison) -> str:
    """Our mean, the number of seeds, the difference from the paper if that prints a number, and the standard error."""
    if not one.last:
        return "-"
    ours = f"{statistics.mean(one.last):.2f}"
    if one.difference is None:
        return f"{ours}{_sure(one.standard_error)}, n={len(one.last)}"
    return f"{ours}, n={len(one.last)} ({difference(one)})"


def difference(one: Comparison) -> str:
    """Ours minus the paper's number, for a cell that has both, and the standard error."""
    assert one.difference is not None
    return in_points(one.difference, one.standard_error)


def in_points(points: float, error: float | None) -> str:
    """A difference and its standard error, if it is known."""
    return f"{points:+.2f}{_sure(error)}"


def _sure(error: float | None) -> str:
    return "" if error is None else f" ± {error:.2f}"


def mean_of(shares: Sequence[float]) -> str:
    """Of the FLOPs of several seeds."""
    return f"{statistics.mean(shares):.3f}" if shares else "-"

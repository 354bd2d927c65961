"""Ours beside the paper's: means over seeds, differences, and how sure one can be of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from granet.studies.tables import Cell
from granet.training.rundir import run_name

PAPER_SEEDS = 3


@dataclass(frozen=True)
class Comparison:
    """A cell and what was measured for it, one entry for each seed."""

    cell: Cell
    last: tuple[float, ...]
    """Test accuracy of the last epoch, in percent."""
    best: tuple[float, ...]
    """Test accuracy of the epoch that validation chooses, in percent; empty without a validation part."""
    test_flops: tuple[float, ...] = ()
    """Of inference, as shares of the dense network's."""
    train_flops: tuple[float, ...] = ()

    @property
    def difference(self) -> float | None:
        """Mean of the last epochs minus the paper's number."""
        printed = self.cell.accuracy
        return statistics.mean(self.last) - printed if self.last and printed is not None else None

    def standard_error(self, spread: float | None) -> float | None:
        """Of the difference, or of our mean where the paper prints nothing.

        ``spread`` is the deviation over seeds, for want of one where only one seed was run.
        """
        ours = statistics.stdev(self.last) if len(self.last) > 1 else spread
        theirs = 0.0 if self.cell.accuracy is None else self.cell.std if self.cell.std is not None else spread
        if not self.last or ours is None or theirs is None:
            return None
        return math.sqrt(ours**2 / len(self.last) + theirs**2 / PAPER_SEEDS)


def compare(cells: Iterable[Cell], results: Mapping[str, Mapping[str, str]], seeds: Sequence[int]) -> list[Comparison]:
    """Each cell with the results there are."""
    compared = []
    for cell in cells:
        names = [run_name(recipes[-1]) for seed in seeds if (recipes := cell.recipes(seed))]
        rows = [results[name] for name in names if name in results]
        measured = ("accuracy_last", "accuracy_best", "test_flops", "train_flops")
        values = (tuple(float(row[name]) for row in rows if row.get(name)) for name in measured)
        compared.append(Comparison(cell, *values))
    return compared


def seed_spread(comparisons: Iterable[Comparison]) -> float | None:
    """The deviation of a run over seeds, pooled over all cells with two seeds or more; None if there are none."""
    several = [one.last for one in comparisons if len(one.last) > 1]
    freedom = sum(len(last) - 1 for last in several)
    return (
        math.sqrt(sum(statistics.variance(last) * (len(last) - 1) for last in several) / freedom) if freedom else None
    )

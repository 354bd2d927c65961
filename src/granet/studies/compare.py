"""Ours beside the paper's: means over seeds, differences, and how sure one can be of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from granet.studies import tables
from granet.studies.tables import ROWS, Cell
from granet.training.rundir import run_name

PAPER_SEEDS = 3


@dataclass(frozen=True)
class Comparison:
    """A cell and what was measured for it, one entry for each seed."""

    cell: Cell
    last: tuple[float, ...]
    """Test accuracy of the last epoch, in percent."""
    as_paper: tuple[float, ...] = ()
    """Test accuracy of the best test epoch at the final sparsity, in percent."""
    test_flops: tuple[float, ...] = ()
    """Of inference, as shares of the dense network's."""
    train_flops: tuple[float, ...] = ()
    spread: float | None = None
    """The deviation of a run over seeds, from :func:`with_spread`."""

    @property
    def difference(self) -> float | None:
        """Mean of the last epochs minus the paper's number."""
        printed = self.cell.accuracy
        return statistics.mean(self.last) - printed if self.last and printed is not None else None

    @property
    def standard_error(self) -> float | None:
        """Of the difference, or of our mean where the paper prints nothing."""
        if self.own_error is None or self.spread is None or self.cell.accuracy is None:
            return self.own_error
        return math.hypot(self.own_error, self.spread / math.sqrt(PAPER_SEEDS))

    @property
    def own_error(self) -> float | None:
        """The standard error of our mean."""
        return self.spread / math.sqrt(len(self.last)) if self.last and self.spread is not None else None

    @property
    def by_papers_protocol(self) -> Comparison:
        """The same with the best test epoch in place of the last one."""
        return replace(self, last=self.as_paper)


Lead = tuple[float, float | None]
"""Points of accuracy, and their standard error if it is known."""


def lead(one: Comparison, other: Comparison) -> Lead:
    """How far the mean of one cell's runs is above that of another's."""
    return statistics.mean(one.last) - statistics.mean(other.last), _together([one.own_error, other.own_error])


def mean_lead(leads: Sequence[Lead]) -> Lead:
    """Of leads that have no run in common."""
    error = _together([error for _, error in leads])
    return statistics.mean(points for points, _ in leads), None if error is None else error / len(leads)


def _together(errors: Sequence[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return math.hypot(*known) if len(known) == len(errors) else None


def compare(cells: Iterable[Cell], results: Mapping[str, Mapping[str, str]], seeds: Sequence[int]) -> list[Comparison]:
    """Each cell with the results there are, and with a spread that is the same in every table."""
    known: dict[tuple[str, ...], Comparison] = {}
    for table in ROWS:
        for cell in tables.cells(table):
            names = _runs(cell, range(PAPER_SEEDS))
            if names and (names not in known or cell.std is not None):  # what stands in several tables counts once
                known[names] = _measured(cell, names, results)
    compared = [_measured(cell, _runs(cell, seeds), results) for cell in cells]
    return with_spread(compared, list(known.values()))


def _runs(cell: Cell, seeds: Sequence[int]) -> tuple[str, ...]:
    """The names of the runs that measure it."""
    return tuple(run_name(recipes[-1]) for seed in seeds if (recipes := cell.recipes(seed)))


def _measured(cell: Cell, names: Sequence[str], results: Mapping[str, Mapping[str, str]]) -> Comparison:
    rows = [results[name] for name in names if name in results]
    last, as_paper, inference, training = (
        tuple(float(row[name]) for row in rows if row.get(name))
        for name in ("accuracy_last", "accuracy_as_paper", "test_flops", "train_flops")
    )
    return Comparison(cell, last, as_paper, inference, training)


def with_spread(comparisons: Sequence[Comparison], known: Sequence[Comparison]) -> list[Comparison]:
    """Each with the spread of its network and data set.

    Few seeds tell little about one cell, so the deviation is pooled: over the known cells that we ran with two seeds
    or more, and over those for which the paper prints one. None if there are none of either.
    """
    variances: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for one in known:
        found = variances.setdefault((one.cell.model, one.cell.data), [])
        if len(one.last) > 1:
            found.append((statistics.variance(one.last), len(one.last) - 1))
        if one.cell.std is not None:
            found.append((one.cell.std**2, PAPER_SEEDS - 1))
    pooled = {where: _pooled(found) for where, found in variances.items()}
    return [replace(one, spread=pooled.get((one.cell.model, one.cell.data))) for one in comparisons]


def _pooled(variances: Sequence[tuple[float, int]]) -> float | None:
    """The deviation from variances and their degrees of freedom."""
    freedom = sum(degrees for _, degrees in variances)
    return math.sqrt(sum(variance * degrees for variance, degrees in variances) / freedom) if freedom else None

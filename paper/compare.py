"""Our numbers beside the paper's: means over seeds, differences, and their standard errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from granet.training.rundir import run_name
from paper import tables
from paper.tables import ROWS, Cell

PAPER_SEEDS = 3
BROKEN = 10.0
"""A run broke down if its training accuracy fell by more points than this from one epoch to the next."""


@dataclass(frozen=True)
class SeedDeviations:
    """Standard deviations of runs that differ only in their seed; None if unknown."""

    last: float | None = None
    """Of our last epochs."""
    best_on_test: float | None = None
    """Of our best test epochs."""
    paper: float | None = None
    """Of the numbers that the paper averages."""


@dataclass(frozen=True)
class Comparison:
    """A cell and what was measured for it, one entry for each seed."""

    cell: Cell
    last: tuple[float, ...]
    """Test accuracy of the last epoch, in percent."""
    best_on_test: tuple[float, ...] = ()
    """Test accuracy of the best test epoch at the final sparsity, in percent."""
    test_flops: tuple[float, ...] = ()
    """Of inference, as shares of the dense network's."""
    train_flops: tuple[float, ...] = ()
    sparsities: tuple[float, ...] = ()
    """That the networks ended with."""
    falls: tuple[float, ...] = ()
    """By how many points the training accuracy fell from one epoch to the next, at most."""
    deviations: SeedDeviations = SeedDeviations()
    """Over seeds, from :func:`with_deviations`."""

    @property
    def difference(self) -> float | None:
        """Mean of the last epochs minus the paper's number."""
        printed = self.cell.accuracy
        return statistics.mean(self.last) - printed if self.last and printed is not None else None

    @property
    def standard_error(self) -> float | None:
        """The standard error of the difference, or of our mean where the paper prints nothing."""
        if self.cell.accuracy is None:
            return self.own_error
        return _combined([self.own_error, _error_of_mean(self.deviations.paper, PAPER_SEEDS)])

    @property
    def own_error(self) -> float | None:
        """The standard error of our mean; of a single run that broke down it is not known."""
        if not self.broke_down:
            return _error_of_mean(self.deviations.last, len(self.last))
        return _error_of_mean(statistics.stdev(self.last), len(self.last)) if len(self.last) > 1 else None

    @property
    def broke_down(self) -> bool:
        """Whether training broke down for some seeds: the deviations of other cells say nothing about these."""
        return any(fall > BROKEN for fall in self.falls)

    @property
    def at_best_test_epoch(self) -> Comparison:
        """The same by the paper's protocol: the best test epochs take the place of ``last``."""
        return replace(
            self, last=self.best_on_test, deviations=replace(self.deviations, last=self.deviations.best_on_test)
        )


Lead = tuple[float, float | None]
"""Points of accuracy, and their standard error if it is known."""


def lead(one: Comparison, other: Comparison) -> Lead:
    """How far the mean of one cell's runs is above that of another's."""
    return statistics.mean(one.last) - statistics.mean(other.last), _combined([one.own_error, other.own_error])


def mean_lead(leads: Sequence[Lead]) -> Lead:
    """Of leads that have no run in common."""
    error = _combined([error for _, error in leads])
    return statistics.mean(points for points, _ in leads), None if error is None else error / len(leads)


def _error_of_mean(deviation: float | None, runs: int) -> float | None:
    return deviation / math.sqrt(runs) if runs and deviation is not None else None


def _combined(errors: Sequence[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return math.hypot(*known) if len(known) == len(errors) else None


def compare(cells: Iterable[Cell], results: Mapping[str, Mapping[str, str]], seeds: Sequence[int]) -> list[Comparison]:
    """Each cell with the available results, and with deviations that are the same in every table."""
    known: dict[tuple[str, ...], Comparison] = {}
    for table in ROWS:
        for cell in tables.cells(table):
            names = run_names(cell, range(PAPER_SEEDS))
            if names and names not in known:  # a cell that is in several tables counts once
                known[names] = _measured(cell, names, results)
    compared = [_measured(cell, run_names(cell, seeds), results) for cell in cells]
    return with_deviations(compared, list(known.values()))


def run_names(cell: Cell, seeds: Sequence[int]) -> tuple[str, ...]:
    """The names of the runs that measure it."""
    return tuple(name for seed in seeds if (name := _run_name(cell, seed)))


@cache
def _run_name(cell: Cell, seed: int) -> str | None:
    """It takes a millisecond, and every table asks for those of all cells."""
    recipes = cell.recipes(seed)
    return run_name(recipes[-1]) if recipes else None


def _measured(cell: Cell, names: Sequence[str], results: Mapping[str, Mapping[str, str]]) -> Comparison:
    rows = [results[name] for name in names if name in results]

    def column(name: str) -> tuple[float, ...]:
        return tuple(float(row[name]) for row in rows if row.get(name))

    return Comparison(
        cell,
        last=column("accuracy_last"),
        best_on_test=column("accuracy_as_paper"),
        test_flops=column("test_flops"),
        train_flops=column("train_flops"),
        sparsities=column("sparsity_achieved"),
        falls=column("largest_fall"),
    )


def with_deviations(comparisons: Sequence[Comparison], known: Sequence[Comparison]) -> list[Comparison]:
    """Each with the deviations of its network and data set.

    Few seeds say little about one cell, so deviations are pooled: ours over the known cells that we ran with two or
    more seeds, the paper's over those for which it prints one. The two are kept apart because the last epoch varies
    more than the best one. Where one is missing, the other is used.
    """
    deviations = {place: _deviations(cells) for place, cells in by_place(known).items()}
    return [replace(one, deviations=deviations.get(one.cell.place, SeedDeviations())) for one in comparisons]


def by_place(comparisons: Iterable[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """The cells of each network and data set."""
    places: dict[tuple[str, str], list[Comparison]] = {}
    for one in comparisons:
        places.setdefault(one.cell.place, []).append(one)
    return places


def _deviations(cells: Sequence[Comparison]) -> SeedDeviations:
    sound = [one for one in cells if not one.broke_down]
    last = _pooled([_variance(one.last) for one in sound])
    best_on_test = _pooled([_variance(one.best_on_test) for one in sound])
    paper = _pooled([(std**2, PAPER_SEEDS - 1) for one in cells if (std := one.cell.own_std) is not None])
    return SeedDeviations(
        paper if last is None else last,
        paper if best_on_test is None else best_on_test,
        best_on_test if paper is None else paper,
    )


Variance = tuple[float, int]
"""And its degrees of freedom."""


def _variance(runs: Sequence[float]) -> Variance:
    return (statistics.variance(runs), len(runs) - 1) if len(runs) > 1 else (0.0, 0)


def _pooled(variances: Sequence[Variance]) -> float | None:
    """The deviation from all of them."""
    freedom = sum(degrees for _, degrees in variances)
    return math.sqrt(sum(variance * degrees for variance, degrees in variances) / freedom) if freedom else None

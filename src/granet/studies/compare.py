"""Ours beside the paper's: means over seeds, differences, and how sure one can be of them."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def read_results(folder: Path) -> dict[str, dict[str, str]]:
    """All rows of the result files in a folder by the name of the run, each with the name of its file."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if "run" not in row:
                    raise ValueError(f"results={str(folder)!r}: {path.name} has no column 'run'")
                found[row["run"]] = row | {"file": path.name}
    return found


def compare(cells: Iterable[Cell], results: Mapping[str, Mapping[str, str]], seeds: Sequence[int]) -> list[Comparison]:
    """Each cell with the results there are."""
    compared = []
    for cell in cells:
        names = [run_name(recipes[-1]) for seed in seeds if (recipes := cell.recipes(seed))]
        rows = [results[name] for name in names if name in results]
        best = tuple(float(row["accuracy_best"]) for row in rows if row["accuracy_best"])
        compared.append(Comparison(cell, tuple(float(row["accuracy_last"]) for row in rows), best))
    return compared


def seed_spread(comparisons: Iterable[Comparison]) -> float | None:
    """The deviation of a run over seeds, pooled over all cells with two seeds or more; None if there are none."""
    several = [one.last for one in comparisons if len(one.last) > 1]
    freedom = sum(len(last) - 1 for last in several)
    return (
        math.sqrt(sum(statistics.variance(last) * (len(last) - 1) for last in several) / freedom) if freedom else None
    )

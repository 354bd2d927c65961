"""The results of the finished branches of a plasticity study: one row each, and the means that figures show."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from granet.studies.plasticity import REGENERATION, Branch, Study
from granet.studies.results import write_csv
from granet.training.checkpoint import kept_path
from granet.training.records import EpochRecord
from granet.training.rundir import RunDir, run_name


@dataclass(frozen=True)
class Point:
    """One finished branch. Accuracies and their difference are in percent, on test images."""

    data: str
    model: str
    pattern: str
    measure: str
    distribution: str
    pretrained_sparsity: float
    pruning_rate: float
    regeneration: str
    epoch: int
    """After which it was pruned."""
    learning_rate: float
    """Of that epoch."""
    seed: int
    accuracy_before: float
    """Of the trunk: after that epoch for plasticity, at its end for the final gap."""
    accuracy_after: float
    difference: float
    """The measure itself, in percentage points."""
    sparsity: float
    """At the end of the branch."""
    run: str


def points(study: Study, out: Path) -> list[Point]:
    """The branches that are finished and have what they are compared with, in the order of the study."""
    done = cache(lambda recipe: RunDir.find(out, recipe).summary is not None)
    return [
        point_of(branch, out)
        for branch in study.branches()
        if done(branch.recipe) and (branch.measure == "plasticity" or done(branch.trunk))
    ]


def point_of(branch: Branch, out: Path) -> Point:
    """The result of a finished branch; the final gap also needs its finished trunk."""
    run = RunDir.find(out, branch.recipe)
    ended, started = run.summary, run.records[branch.epoch - 1]  # its records begin with those of its trunk
    compared = started if branch.measure == "plasticity" else RunDir.find(out, branch.trunk).summary
    assert ended is not None and compared is not None
    after, before = ended.test_accuracy, compared.test_accuracy
    return Point(
        data=branch.trunk.data,
        model=branch.trunk.model,
        pattern=branch.study.pattern,
        measure=branch.measure,
        distribution=branch.distribution,
        pretrained_sparsity=branch.sparsity,
        pruning_rate=branch.rate,
        regeneration=branch.regeneration,
        epoch=branch.epoch,
        learning_rate=started.lr,
        seed=branch.seed,
        accuracy_before=round(100 * before, 3),
        accuracy_after=round(100 * after, 3),
        difference=round(100 * (after - before), 3),
        sparsity=round(ended.sparsity, 8),
        run=run_name(branch.recipe),
    )


def check_kept(branches: Iterable[Branch], out: Path) -> None:
    """ValueError if a finished trunk has lost a checkpoint that unfinished branches need."""
    needed = {(branch.trunk, branch.epoch) for branch in branches if not RunDir.find(out, branch.recipe).summary}
    for trunk, epoch in needed:
        folder = RunDir.find(out, trunk)
        if folder.summary is not None and not (path := kept_path(folder.path, epoch)).is_file():
            raise ValueError(f"{path}: is missing; remove its folder to train that run again")


def means(chosen: Iterable[Point]) -> dict[int, float]:
    """The mean difference over seeds at each epoch, in order."""
    by_epoch: dict[int, list[float]] = {}
    for point in chosen:
        by_epoch.setdefault(point.epoch, []).append(point.difference)
    return {epoch: statistics.mean(by_epoch[epoch]) for epoch in sorted(by_epoch)}


def lines(study: Study, chosen: Iterable[Point]) -> dict[tuple[float, str, float], dict[int, float]]:
    """The lines of a figure: pre-trained sparsity, regeneration and pruning rate to the means of those points."""
    found: dict[tuple[float, str, float], list[Point]] = {
        key: [] for key in itertools.product(study.sparsities, REGENERATION, study.rates)
    }
    for point in chosen:
        found[point.pretrained_sparsity, point.regeneration, point.pruning_rate].append(point)
    return {key: means(line) for key, line in found.items()}


def rate_drops(trunk: Sequence[EpochRecord]) -> list[int]:
    """The epochs after which the learning rate falls to half or less: its steps, not a smooth decay."""
    return [before.epoch for before, after in itertools.pairwise(trunk) if after.lr <= before.lr / 2]


def write_points(path: Path, table: Iterable[Point]) -> None:
    """The numbers as CSV, whole or not at all."""
    write_csv(path, map(asdict, table), list(Point.__dataclass_fields__))

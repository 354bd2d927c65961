"""One of many runs: where it trains, what is told of it, when its turn comes, and the training itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import torch

from granet.error_line import error_line
from granet.studies.jobs.gate import Gate
from granet.training.checkpoint import kept_path
from granet.training.feeds import Data, check_workers
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord
from granet.training.run import Run, check_checkpoint_every
from granet.training.rundir import TrainedElsewhere, run_name


@dataclass(frozen=True)
class Place:
    """Where runs read, train and write."""

    device: torch.device
    out: Path
    data_dir: Path | None = None
    workers: int | None = None
    checkpoint_every: float = 60.0

    def __post_init__(self) -> None:
        """Report what is wrong for all runs once, before the first of them."""
        check_workers(self.workers)
        check_checkpoint_every(self.checkpoint_every)


@dataclass(frozen=True)
class Event:
    """What happened to a run: an epoch is done, the run ended, well (no error) or not, or it is not ours to train."""

    recipe: Recipe
    record: EpochRecord | None = None
    error: str | None = None
    elsewhere: bool = False
    """Another process trains it."""


def take_next(waiting: deque[Recipe], running: Collection[Recipe], out: Path) -> Recipe | None:
    """Take the first recipe that need not wait for another; None if there is none for now.

    A run waits for its parent to be finished, a branch of one only for the state that it starts from.
    """
    coming = {run_name(recipe) for recipe in (*waiting, *running)}
    for recipe in waiting:
        if recipe.parent not in coming or _can_branch(recipe, out):
            waiting.remove(recipe)
            return recipe
    return None


def _can_branch(recipe: Recipe, out: Path) -> bool:
    return recipe.branch_epoch > 0 and kept_path(out / recipe.parent, recipe.branch_epoch).is_file()


def train_run(
    recipe: Recipe,
    place: Place,
    read: Callable[[], Data],
    tell: Callable[[Event], None],
    stop: Callable[[], bool],
    gate: Gate,
) -> None:
    """Train one run; whatever goes wrong is reported and does not reach the others, who share the gate."""
    try:
        with gate.alone():
            run = Run(recipe, read(), place.device, place.out, workers=place.workers)
        with gate.working() as step_aside:

            def between_steps() -> bool:
                step_aside()
                return stop()

            for record in run.epochs(place.checkpoint_every, between_steps):
                tell(Event(recipe, record))
        tell(Event(recipe))
    except TrainedElsewhere:
        tell(Event(recipe, elsewhere=run.folder.summary is None))  # else it is done, by whomever
    except (Exception, SystemExit) as error:
        tell(Event(recipe, error=error_line(error)))

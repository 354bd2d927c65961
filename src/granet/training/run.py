"""A run from its first step, or from where an earlier start left it, to a finished folder."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from granet.error_line import error_line
from granet.training.branch import find_parent, load_branch
from granet.training.checkpoint import keep_state, load_checkpoint, remove_checkpoints, save_checkpoint
from granet.training.feeds import Data
from granet.training.fingerprint import fingerprint
from granet.training.loggers import Logger, logging_to
from granet.training.loop import Training
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary
from granet.training.rundir import RunDir, TrainedElsewhere


class Run:
    """One recipe and its folder under ``out``.

    A finished run has a ``summary`` at once, and nothing is built. Otherwise the recipe is checked by building
    everything before anything is written. ``loggers`` are told about every epoch and the outcome.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Data,
        device: torch.device,
        out: Path,
        *,
        workers: int | None = None,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.recipe = recipe
        self.folder = RunDir.find(out, recipe)
        self._images = fingerprint(data)
        self.folder.check_images(self._images)
        self.summary: Summary | None = self.folder.summary
        self._title = f"{recipe.method} on {data.name}, seed {recipe.seed}"
        self._device = device
        self._loggers = loggers
        if self.summary is not None:
            remove_checkpoints(self.folder.path)  # it may have been killed before it did so itself
        else:
            state = load_checkpoint(self.folder.path, device)
            parent = find_parent(recipe, out) if recipe.parent else None
            branch = load_branch(recipe, parent, device) if parent and recipe.branch_epoch else None
            self.training = Training(
                recipe, data, device=device, state=state, workers=workers, parent=parent, branch=branch
            )

    @property
    def epochs_done(self) -> int:
        return self.recipe.total_epochs if self.summary is not None else len(self.training.records)

    def epochs(self, checkpoint_every: float = 20.0, stop: Callable[[], bool] = lambda: False) -> Iterator[EpochRecord]:
        """Train to the end and write all files.

        A checkpoint is written when ``checkpoint_every`` seconds have passed since the last, and when ``stop`` says
        True: then the run ends with KeyboardInterrupt, and can be resumed.
        """
        if self.summary is not None:
            return
        check_checkpoint_every(checkpoint_every)
        self.folder.make()
        with self.folder.locked():
            if self.folder.summary is not None:
                raise TrainedElsewhere(f"{self.folder.told} was finished meanwhile")
            self.folder.describe(self.recipe, self._device, self._images)
            self.folder.begin(self.training.records)
            with logging_to(self._loggers, self.recipe, self.folder.path, self.epochs_done) as log:
                for record in self.training.epochs(self._saving(checkpoint_every, stop)):
                    self.folder.append(record)
                    if record.epoch in self.recipe.keep:
                        keep_state(self.folder.path, record.epoch, self.training.state())
                    log.epoch(record)
                    yield record
                self.summary = self._finish()
                log.finish(self.summary)

    def _saving(self, every: float, stop: Callable[[], bool]) -> Callable[[], None]:
        """What to call between two steps: it writes a checkpoint when one is due, and ends the run when asked to."""
        saved = time.monotonic()

        def between() -> None:
            nonlocal saved
            asked = stop()
            if asked or time.monotonic() - saved >= every:
                save_checkpoint(self.folder.path, self.training.step, self.training.state())
                saved = time.monotonic()
            if asked:
                raise KeyboardInterrupt

        return between

    def _finish(self) -> Summary:
        summary = self.training.summary()
        # A study has hundreds of branches: it draws them together, and nobody asks for the weights of each.
        model = None if self.recipe.branch_epoch else self.training.final_model
        if model is not None and importlib.util.find_spec("matplotlib") is not None:
            self._plot()
        self.folder.finish(model, summary, self.training.sparsifier)  # now it is done
        remove_checkpoints(self.folder.path)
        return summary

    def _plot(self) -> None:
        """Draw the curves. If matplotlib is installed but does not work, only the picture is lost, not the weights."""
        from granet.training.plots import plot_run

        try:
            plot_run(self.training.records, self.folder.path / "curves.png", self._title)
        except OSError:  # a disk error: writing the weights would fail too
            raise
        except Exception as error:
            warnings.warn(f"granet: matplotlib failed ({error_line(error)}); the run has no curves.png", stacklevel=2)


def check_checkpoint_every(seconds: float) -> None:
    """ValueError for an invalid time; infinity is valid, for checkpoints only when a run is stopped."""
    if not seconds >= 0:
        raise ValueError(f"checkpoint_every={seconds!r}: must be 0 or more seconds")

"""A run from its first step, or from where an earlier start left it, to a finished folder."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from granet.data.dataset import ImageSet
from granet.training.checkpoint import load_checkpoint, save_checkpoint
from granet.training.loggers import Logger, logging_to
from granet.training.loop import Training
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary
from granet.training.rundir import RunDir


class Run:
    """One recipe and its folder under ``out``.

    A run that is finished has a ``summary`` at once and nothing is built. Otherwise the recipe is proved sound by
    building all of it before anything is written. ``loggers`` are told about every epoch and the outcome.
    """

    def __init__(
        self, recipe: Recipe, data: ImageSet, device: torch.device, out: Path, loggers: Sequence[Logger] = ()
    ) -> None:
        self.recipe = recipe
        self.folder = RunDir.find(out, recipe)
        self.summary: Summary | None = self.folder.summary
        self._title = f"{recipe.method} on {data.name}, seed {recipe.seed}"
        self._device = device
        self._loggers = loggers
        if self.summary is None:
            self.training = Training(recipe, data, device=device, state=load_checkpoint(self.folder.path, device))

    @property
    def epochs_done(self) -> int:
        return self.recipe.epochs if self.summary is not None else len(self.training.records)

    def epochs(self, checkpoint_every: float = 20.0) -> Iterator[EpochRecord]:
        """Train to the end and write all files; a checkpoint when so many seconds have passed since the last."""
        if self.summary is not None:
            return
        self.folder.make(self.recipe, self._device)
        self.folder.begin(self.training.records)
        with logging_to(self._loggers, self.recipe, self.folder.path, self.epochs_done) as log:
            saved = time.monotonic()
            for record in self.training.epochs():
                if time.monotonic() - saved >= checkpoint_every and record.epoch < self.recipe.epochs:
                    save_checkpoint(self.folder.path, record.epoch, self.training.state())
                    saved = time.monotonic()
                self.folder.append(record)
                log.epoch(record)
                yield record
            self.summary = self._finish()
            log.finish(self.summary)

    def _finish(self) -> Summary:
        if importlib.util.find_spec("matplotlib") is not None:
            from granet.training.plots import plot_run

            plot_run(self.training.records, self.folder.path / "curves.png", self._title)
        summary = self.training.summary()
        # Last: its summary says that the run is done.
        self.folder.finish(self.training.model, summary, self.training.sparsifier)
        return summary

"""What a run costs: FLOPs of its present network and of its training so far, as shares of the dense network's."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from granet.flop_counting import FlopsReport, TrainingFlops, flops
from granet.sparsifier import Sparsifier
from granet.training.feeds import Data
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord
from granet.training.setup import make_model
from granet.weights import count_active


class Cost:
    """Counts one run, whose dense training without stretch would take ``base_steps``."""

    def __init__(
        self, recipe: Recipe, data: Data, model: nn.Module, sparsifier: Sparsifier | None, base_steps: int
    ) -> None:
        device = next(model.parameters()).device
        self._report = flops(model, torch.zeros(1, *data.shape, device=device), masks={})
        self._share = _share_of_full_width(recipe, data, self._report)
        self._sparsifier = sparsifier
        self._training = TrainingFlops.of(self._report, sparsifier) if sparsifier else None
        self._base_steps = base_steps

    def of_a_pass(self) -> float:
        """The share of FLOPs that is left in a forward pass through the present network."""
        if self._sparsifier is None:
            return self._share
        return self._share * self._report.with_active(count_active(self._sparsifier.in_use)).ratio

    def of_training(self, steps: int, trunk: EpochRecord | None) -> float:
        """The FLOPs of that many steps, as a share of dense training; those up to ``trunk`` are another run's."""
        own, before = (steps - trunk.step, trunk.train_flops or 0.0) if trunk else (steps, 0.0)
        if self._training is None or self._sparsifier is None:
            return before + self._share * own / self._base_steps
        cost = self._training.after(own, self._sparsifier.history)
        return before + self._share * cost.relative_to(self._base_steps)


def _share_of_full_width(recipe: Recipe, data: Data, report: FlopsReport) -> float:
    """The network's FLOPs as a share of those of the same network without a width multiplier."""
    if recipe.width == 1:
        return 1.0
    with torch.device("meta"):  # shapes only
        whole = make_model(dataclasses.replace(recipe, width=1.0), data)
        return report.dense / flops(whole, torch.zeros(1, *data.shape)).dense

"""Units that hardly respond to anything."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from granet.observers.activations import look_at_activations
from granet.observers.base import Observer

TAU = 0.025


class Dormant(Observer):
    """Dormant neurons (Sokar et al. 2023, arXiv 2302.12902): the score of unit i of a layer with H units is

        s_i = E|h_i(x)| / (1/H sum_k E|h_k(x)|)

    for its activation h_i, with the mean taken over the images of a fixed batch and the positions in them.

    - ``share``: of all units of all activations, those with s_i <= 0.025;
    - ``silent``: those whose activation is zero everywhere, s_i = 0.
    """

    cost: ClassVar[str] = "one forward pass of a small batch at the end of an epoch"
    needs_images: ClassVar[bool] = True
    needs_activations: ClassVar[bool] = True

    def epoch(self) -> dict[str, float]:
        scores = torch.cat(look_at_activations(self.watched, dormancy))
        if not scores.isfinite().all():
            return {}
        return {"share": (scores <= TAU).double().mean().item(), "silent": (scores == 0).double().mean().item()}


def dormancy(units: Tensor) -> Tensor:
    """s_i of each unit, from [places, units]; 0 for all if the whole layer outputs zero.

    >>> dormancy(torch.tensor([[1.0, 0.0, -2.0], [1.0, 0.0, 0.0]])).tolist()
    [1.5, 0.0, 1.5]
    """
    size = units.abs().double().mean(0)
    mean = size.mean()
    return size / torch.where(mean == 0, 1.0, mean)

"""Filters that a mask has cut off."""

from __future__ import annotations

from typing import ClassVar

import torch

from granet.observers.base import Observer
from granet.patterns import FILTERS


class DeadFilters(Observer):
    """``share``: of the output channels of convolutions and the outputs of linear layers, those with no active weight.

    All sparse layers together, at the end of the epoch. Such a filter outputs a constant and could be taken out.
    """

    cost: ClassVar[str] = "one pass over the masks at the end of an epoch"
    needs_masks: ClassVar[bool] = True

    @torch.no_grad()
    def epoch(self) -> dict[str, float]:
        dead = torch.cat([FILTERS.pool(layer, layer.mask.float()).cpu() == 0 for layer in self._layers])
        return {"share": dead.double().mean().item()}

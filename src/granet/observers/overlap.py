"""How much of the mask a mask update leaves in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from granet.observers.base import Observer, Watched, pack_all, unpack_all
from granet.tensors.row import nonzero


class Overlap(Observer):
    """Of the masks A before and B after an update, all layers together, the mean over the epoch's updates of

    - ``jaccard``: |A and B| / |A or B|;
    - ``kept``: |A and B| / |A|, the share of active weights that stay active.

    An epoch without an update has no figures.
    """

    cost: ClassVar[str] = "a copy of the masks (1 byte a weight) and three counts of them at each mask update"
    needs_masks: ClassVar[bool] = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._before = [layer.mask.clone() for layer in self._layers]
        self._sums = torch.zeros(3, dtype=torch.float64, device=watched.device)  # jaccard, kept, updates

    @torch.no_grad()
    def after_step(self, updated: bool) -> None:
        if not updated:
            return
        pairs = [(before, layer.mask) for before, layer in zip(self._before, self._layers, strict=True)]
        both, either = self._count(a & b for a, b in pairs), self._count(a | b for a, b in pairs)
        self._sums += torch.stack([both / either, both / self._count(self._before), torch.ones_like(both)])
        for before, after in pairs:
            before.copy_(after)

    def _count(self, masks: Iterable[Tensor]) -> Tensor:
        return nonzero(masks, self._sums.device).sum().double()

    def epoch(self) -> dict[str, float]:
        jaccard, kept, updates = self._sums.tolist()
        self._sums.zero_()
        return {"jaccard": jaccard / updates, "kept": kept / updates} if updates else {}

    def state(self) -> dict[str, Any]:
        return {"before": pack_all(self._before), "sums": self._sums.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        unpack_all(state["before"], self._before)
        self._sums.copy_(state["sums"])

"""How much of the dense network has been tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from granet.observers.base import Observer, Watched, pack_all, unpack_all


class EverActive(Observer):
    """``share``: R_s, the share of the sparsified weights that have been active at some time so far.

    In-time over-parameterisation (Liu et al. 2021, arXiv 2102.02887) holds that a sparse network may reach
    a dense one's accuracy if R_s comes near 1. It is 1 from the beginning for a run that starts dense.
    """

    cost: ClassVar[str] = "a second set of masks (1 byte a weight), one pass over them at each mask update"
    needs_masks: ClassVar[bool] = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._ever = [layer.mask.clone() for layer in self._layers]

    def after_step(self, updated: bool) -> None:
        if updated:
            self._look()

    @torch.no_grad()
    def _look(self) -> None:
        for ever, layer in zip(self._ever, self._layers, strict=True):
            ever.logical_or_(layer.mask)

    def epoch(self) -> dict[str, float]:
        self._look()  # masks may have changed since the last update (str, vd)
        ever = sum(int(mask.count_nonzero()) for mask in self._ever)
        return {"share": ever / sum(layer.numel for layer in self._layers)}

    def state(self) -> dict[str, Any]:
        return {"ever": pack_all(self._ever)}

    def load(self, state: Mapping[str, Any]) -> None:
        unpack_all(state["ever"], self._ever)

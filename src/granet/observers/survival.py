"""How long regrown weights stay active."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from granet.observers.base import Observer, Watched

_INACTIVE, _FROM_THE_START = -1, 0


class Survival(Observer):
    """What becomes of regrown weights: those that were inactive before an update and active after it.

    Over all of them so far (a weight that was grown twice counts twice):

    - ``alive``: the share that is still active;
    - ``age_at_death``: of those that are not, the mean number of updates from growth to loss.

    Mask updates are numbered from 1. A weight that an update drops and grows at once was never inactive, so it does not
    count as regrown.
    """

    cost: ClassVar[str] = "an int32 for each weight (4 bytes, in checkpoints too), a few passes at each mask update"
    needs_masks: ClassVar[bool] = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._updates = 0
        self._born = [layer.mask.to(torch.int32).sub_(1) for layer in self._layers]  # the update, or one of the above
        self._sums = torch.zeros(3, dtype=torch.int64, device=watched.device)  # regrown, lost, their ages

    @torch.no_grad()
    def after_step(self, updated: bool) -> None:
        if not updated:
            return
        self._updates += 1
        for born, layer in zip(self._born, self._layers, strict=True):
            lost = (born > _FROM_THE_START) & ~layer.mask
            ages = torch.where(lost, self._updates - born, 0)
            regrown = (born == _INACTIVE) & layer.mask
            self._sums += torch.stack([regrown.sum(), lost.sum(), ages.sum()]).to(self._sums.device)
            born.masked_fill_(~layer.mask, _INACTIVE).masked_fill_(regrown, self._updates)

    def epoch(self) -> dict[str, float]:
        regrown, lost, ages = self._sums.tolist()
        figures = {"alive": 1 - lost / regrown} if regrown else {}
        return figures | ({"age_at_death": ages / lost} if lost else {})

    def state(self) -> dict[str, Any]:
        return {"updates": self._updates, "born": [born.clone() for born in self._born], "sums": self._sums.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._updates = state["updates"]
        self._sums.copy_(state["sums"])
        for born, saved in zip(self._born, state["born"], strict=True):
            born.copy_(saved)

"""How strong the gradient is, and what a mask update does to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from granet.observers.base import Observer, Watched


class GradientNorm(Observer):
    """The Euclidean norm of all gradients of a step together, of active weights and of parameters without a mask.

    "Active" means active during the step, not after a mask update that follows it.

    - ``mean``: over the steps of the epoch;
    - ``after_update``: over the steps of the epoch that were the first after a mask update.

    Regrowth by gradient is meant to raise it (Evci et al. 2022, arXiv 2010.03533, on gradient flow in sparse networks).
    It is read from ``.grad`` after the step; a gradient that was clipped in place is read as clipped.
    """

    cost: ClassVar[str] = "one pass over all gradients at each step, a masked copy of them and one of the masks"

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._now = [layer.mask for layer in self._layers]
        self._before = [mask.clone() for mask in self._now]
        """The masks as they were in the step; the present ones may be new."""
        masks = {id(layer.weight): mask for layer, mask in zip(self._layers, self._before, strict=True)}
        self._parameters = [(one, masks.get(id(one))) for one in watched.model.parameters() if one.requires_grad]
        self._sums = torch.zeros(4, dtype=torch.float64, device=watched.device)  # norms, steps; the same after updates
        self._just_updated = False

    @torch.no_grad()
    def after_step(self, updated: bool) -> None:
        norm = self._norm()
        if norm is not None:
            here = torch.stack([norm, torch.ones_like(norm)])
            self._sums[:2] += here
            if self._just_updated:
                self._sums[2:] += here
        self._just_updated = updated
        self._follow()

    def _follow(self) -> None:
        if self._now:
            torch._foreach_copy_(self._before, self._now)

    def _norm(self) -> Tensor | None:
        gradients = [
            one.grad if mask is None else torch.where(mask, one.grad, 0.0)
            for one, mask in self._parameters
            if one.grad is not None
        ]
        if not gradients:
            return None
        wide = [gradient.float() if gradient.itemsize < 4 else gradient for gradient in gradients]
        norms = [norm.to(self._sums) for norm in torch._foreach_norm(wide)]
        whole: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return whole

    def epoch(self) -> dict[str, float]:
        total, steps, after, updates = self._sums.tolist()
        self._sums.zero_()
        return ({"mean": total / steps} if steps else {}) | ({"after_update": after / updates} if updates else {})

    def state(self) -> dict[str, Any]:
        return {"sums": self._sums.clone(), "just_updated": self._just_updated}

    def load(self, state: Mapping[str, Any]) -> None:
        self._sums.copy_(state["sums"])
        self._just_updated = state["just_updated"]
        self._follow()

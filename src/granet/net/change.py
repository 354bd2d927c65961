"""What a mask update comes back as: a value, of which nothing is written yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from granet.tensors.row import Row
from granet.weights import SparseLayer


@dataclass(frozen=True)
class Change:
    """The next masks of some layers and, for each weight, whether it survives.

    A weight that does not survive starts afresh, it and its optimizer state: those switched off, those that come, and
    those that the method let become zero on the way.
    """

    layers: Sequence[SparseLayer] = ()
    """The layers that had a gradient, so that their masks could change."""
    present: Sequence[Tensor] = field(default=(), repr=False)
    """The masks of the layers themselves, flat where that is a view: what is written to."""
    masks: Sequence[Tensor] = field(default=(), repr=False)
    """The next masks, flat."""
    narrowed: Sequence[Tensor] = field(default=(), repr=False)
    """Of the weights active now, those that survive, flat: mostly the next masks themselves."""
    weights: Sequence[Tensor] = field(default=(), repr=False)
    """What the weights become before all else, if the method moves them itself."""

    @torch.no_grad()
    def write_weights(self) -> None:
        if self.weights:
            torch._foreach_copy_([layer.weight.detach() for layer in self.layers], list(self.weights))

    @torch.no_grad()
    def write_survivors(self) -> None:
        """Leave in the masks only what survives, so that all else can be made to start afresh by them."""
        intersect(self.present, self.narrowed)

    @torch.no_grad()
    def write_masks(self) -> None:
        _write(self.present, self.masks, Tensor.copy_, torch._foreach_copy_)


def intersect(masks: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    """Narrow masks in place to what is in others too."""
    _write(masks, others, Tensor.logical_and_, torch._foreach_mul_)


def _write(masks: Sequence[Tensor], by: Sequence[Tensor], one: Callable[..., Any], several: Callable[..., Any]) -> None:
    """Change masks in place by others, which are flat: all as one, if both lie in rows."""
    if isinstance(masks, Row) and isinstance(by, Row):
        one(masks.whole, by.whole)
    elif masks:
        several(list(masks), [other.view(mask.shape) for other, mask in zip(by, masks, strict=True)])

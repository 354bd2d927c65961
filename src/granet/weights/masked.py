"""Parameters with a mask, whoever chooses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn


class Masked(Protocol):
    """A parameter that is zero where its mask is False: a sparse layer, or what follows one."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> nn.Parameter: ...

    @property
    def mask(self) -> Tensor:
        """Bool, in the shape and memory layout of the weight. Its storage never moves."""


@dataclass(eq=False)
class Follower:
    """A parameter whose mask no method chooses: it follows from the masks of layers."""

    name: str
    weight: nn.Parameter
    mask: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mask = full_mask(self.weight)


def full_mask(weight: Tensor) -> Tensor:
    """A mask of that weight in which all is active."""
    return torch.ones_like(weight, dtype=torch.bool, requires_grad=False)

"""SET: sparse evolutionary training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.clock import Clock, Time
from granet.methods.registry import register
from granet.methods.rigl import SparseToSparse
from granet.net import SparseNet
from granet.scores import magnitude, random


@register(
    "set",
    paper="Mocanu et al. 2018, arXiv 1707.04780",
    score="magnitude",
    growth="random",
    sparse_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class SET(SparseToSparse):
    """Sparse evolutionary training: every epoch drop the weights nearest zero and grow as many at random.

    "Nearest zero" ignores the sign; the authors drop the same share of the positive and of the negative weights. Growth
    draws from all inactive positions. New weights start at zero, but one that the same update has just dropped keeps
    its value, as in RigL's code; the authors' code sets it to zero too.
    """

    distribution: str = "er"
    every: Time = "1ep"
    regrow: float = 0.3

    takes_pattern: ClassVar[bool] = True

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.regenerate(self.regrow, drop=magnitude, grow=random)

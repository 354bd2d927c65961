"""SNFS, sparse momentum: weights grow where the momentum is large, within a layer and among layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from granet.checks import check_ratio
from granet.clock import Clock, Time
from granet.methods.gradient_memory import GradientMemory, Momentum
from granet.methods.registry import register
from granet.methods.rigl import SparseToSparse
from granet.net import SparseNet
from granet.schedules import cosine
from granet.scores import magnitude, momentum


@dataclass(frozen=True, kw_only=True)
class SparseMomentum(SparseToSparse):
    """What both variants share: the momentum of every weight, including inactive ones, in a memory of its own."""

    momentum: float = 0.9
    """Decay of the exponential average of the dense gradient, m <- momentum * m + (1 - momentum) * g.

    1 is the limit of that: the sum of all gradients.
    """

    needs_gradient: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio("momentum", self.momentum)

    @property
    def gradient_memory(self) -> GradientMemory:
        return Momentum(self.momentum)


@register(
    "snfs",
    paper="Dettmers & Zettlemoyer 2019, arXiv 1907.04840",
    score="magnitude",
    growth="momentum",
    distributed="then by momentum",
    cost="one float per weight, a copy of the gradients on every step",
    sparse_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class SNFS(SparseMomentum):
    """Sparse momentum: drop by magnitude, share out by each layer's mean momentum, grow by momentum.

    Once an epoch each layer drops r_t of its weights (0.5 to 0.005 along a cosine). As many weights as all layers
    dropped are divided among the layers in proportion to the mean |m| of their active weights, taken before the drop,
    and grow where |m| is largest. Full layers pass their surplus on to the others.

    Grown weights start with a fresh optimizer state; in the authors' code the optimizer's momentum is dense. Two rules
    of that code for nearly full layers are not implemented: such a layer drops less while it is growing, and a
    hundredth of its room stays free.
    """

    distribution: str = "uniform"
    every: Time = "1ep"
    regrow_end: float = 0.005

    takes_groups: ClassVar[tuple[str, ...]] = ("fan-in",)  # N:M leaves the layers nothing to share

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio("regrow_end", self.regrow_end)

    def update(self, net: SparseNet, clock: Clock) -> None:
        demand = net.mean_size(momentum)
        net.drop_share(self.regrow_ratio(clock), magnitude)
        net.grow(net.share_out(net.lacking(self.sparsity), demand), momentum)

    def regrow_ratio(self, clock: Clock) -> float:
        return cosine(self.regrow, self.regrow_end, clock.progress)


@register(
    "snfs-fixed",
    paper="as run in Evci et al. 2020, arXiv 1911.11134",
    score="magnitude",
    growth="momentum",
    cost="one float per weight, a copy of the gradients on every step",
    sparse_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class SNFSFixed(SparseMomentum):
    """Sparse momentum with fixed layer counts, as in RigL's tables: RigL with growth by momentum."""

    every: Time = 100
    end: Time = "75%"
    regrow: float = 0.3

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.regenerate(self.regrow_ratio(clock), drop=magnitude, grow=momentum, rounding=torch.floor)

    def regrow_ratio(self, clock: Clock) -> float:
        return cosine(self.regrow, 0.0, clock.step / clock.steps(self.end))

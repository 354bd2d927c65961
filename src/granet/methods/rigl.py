"""RigL and RigL-ITOP: sparse to sparse, growth by gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from granet.checks import check_ratio
from granet.clock import Clock, Time
from granet.distributions import distribution
from granet.methods.base import Method, end_step, periodic
from granet.methods.by_gradient import GrowsByGradient
from granet.methods.registry import register
from granet.net import SparseNet
from granet.schedules import cosine
from granet.scores import gradient, magnitude


@dataclass(frozen=True, kw_only=True)
class SparseToSparse(Method):
    """A random sparse network whose active weights move."""

    distribution: str = "erk"
    every: Time = 1000
    end: Time = "100%"
    """No update from here on: one after the very last step would grow weights that are never trained."""
    regrow: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        distribution(self.distribution)
        check_ratio("regrow", self.regrow)

    def begin(self, net: SparseNet) -> None:
        net.sprout(self.sparsity, distribution(self.distribution))

    def updates(self, clock: Clock) -> range:
        return periodic(clock, self.every, start=0, stop=end_step(clock, self.end))


@register(
    "rigl",
    paper="Evci et al. 2020, arXiv 1911.11134",
    score="magnitude",
    growth="gradient",
    cost="a copy of the gradients on update steps",
    sparse_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class RigL(GrowsByGradient, SparseToSparse):
    """RigL: drop by magnitude, grow by gradient, often and early (0.3 every 100 steps, until 75 % of training).

    ``step_on_update=False`` takes no optimizer step on update steps, as the authors' code does.
    """

    every: Time = 100
    end: Time = "75%"
    regrow: float = 0.3
    step_on_update: bool = True  # type: ignore[misc]

    takes_pattern: ClassVar[bool] = True

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.regenerate(self.regrow_ratio(clock), drop=magnitude, grow=gradient, rounding=torch.floor)

    def regrow_ratio(self, clock: Clock) -> float:
        """alpha_t: cosine from ``regrow`` to 0 at ``end``."""
        return cosine(self.regrow, 0.0, clock.step / clock.steps(self.end))


@register(
    "rigl-itop",
    paper="Liu et al. 2021, arXiv 2102.02887",
    score="magnitude",
    growth="gradient",
    cost="a copy of the gradients on update steps, one byte per weight",
    sparse_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class RigLITOP(GrowsByGradient, SparseToSparse):
    """RigL with rare updates up to the end, so that more weights are ever active (0.5 to 0.005, every 1000 steps).

    The history records their share: the in-time over-parameterization rate R_s.
    """

    regrow_end: float = 0.005

    takes_pattern: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio("regrow_end", self.regrow_end)

    def begin(self, net: SparseNet) -> None:
        super().begin(net)
        net.track_ever_active()

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.regenerate(self.regrow_ratio(clock), drop=magnitude, grow=gradient)

    def regrow_ratio(self, clock: Clock) -> float:
        return cosine(self.regrow, self.regrow_end, clock.progress)

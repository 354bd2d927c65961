"""DSR: dynamic sparse reparameterization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from granet.checks import check_number, check_share
from granet.clock import Clock, Time
from granet.methods.registry import register
from granet.methods.rigl import SparseToSparse
from granet.net import SparseNet
from granet.scores import magnitude, random_elsewhere


@register(
    "dsr",
    paper="Mostafa & Wang 2019, arXiv 1902.05967",
    score="magnitude, below one threshold",
    growth="random",
    distributed="then by survivors",
    sparse_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class DSR(SparseToSparse):
    """Dynamic sparse reparameterization: one adaptive threshold prunes all layers, survivors attract random growth.

    All weights below the threshold H are dropped. If these are too few or too many, by more than ``tolerance`` of the
    number wanted, H is doubled or halved for the next update. As many weights grow at random inactive positions,
    divided among layers in proportion to the weights that survived in each.

    ``every`` stays the same; the authors go from 100 to 800 steps on CIFAR-10 as the learning rate falls.
    """

    distribution: str = "uniform"
    every: Time = 200
    regrow: float = 0.1
    """The share of all active weights that an update should move (N_p, as a share)."""
    threshold: float = 1e-3
    """H at the start."""
    tolerance: float = 0.1

    takes_pattern: ClassVar[bool] = True
    takes_groups: ClassVar[tuple[str, ...]] = ("fan-in",)  # N:M leaves the layers nothing to share

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("tolerance", self.tolerance)
        check_number("threshold", self.threshold, above=0)

    def begin(self, net: SparseNet) -> None:
        super().begin(net)
        net.memory["threshold"] = torch.full((), self.threshold, dtype=torch.float64, device=net.device)

    def update(self, net: SparseNet, clock: Clock) -> None:
        threshold = net.memory["threshold"]
        wanted = self.regrow * net.counts.sum().double()  # float32 cannot represent the counts of a large net exactly
        dropped = net.drop(net.below(threshold), magnitude)
        net.grow(net.share_out(net.lacking(self.sparsity), net.counts), random_elsewhere)
        factor = torch.where(dropped.sum() < (1 - self.tolerance) * wanted, 2.0, 1.0)
        factor = torch.where(dropped.sum() > (1 + self.tolerance) * wanted, 0.5, factor)
        threshold.mul_(torch.where(net.accept, factor, 1.0))

"""GraNet: gradual pruning with zero-cost neuroregeneration."""

from __future__ import annotations

from dataclasses import dataclass

from granet.checks import check_choice, check_ratio, check_share
from granet.clock import Clock
from granet.distributions import DISTRIBUTIONS, distribution
from granet.methods.by_gradient import GrowsByGradient
from granet.methods.gmp import GMP
from granet.methods.registry import register
from granet.net import SparseNet
from granet.schedules import cosine
from granet.scores import gradient, magnitude


@register(
    "granet",
    paper="Liu et al. 2021, arXiv 2106.10404",
    score="magnitude or LAMP",
    growth="gradient",
    distributed="a sparse start by ERK",
    cost="a copy of the gradients on update steps",
    dense_to_sparse=True,
    sparse_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class GraNet(GrowsByGradient, GMP):
    """Gradual pruning with neuroregeneration: prune to s_t, then drop r_t of each layer and regrow by gradient.

    ``initial_sparsity`` 0 starts dense; above 0 it starts from a random sparse network. Regeneration goes on after the
    pruning window, to the end of training, with r_t falling from ``regrow`` to ``regrow_end`` along a cosine.

    A weight that pruning switches off becomes zero, even if the same update regrows it; one that regeneration drops and
    regrows in the same update keeps its value and optimizer state.
    """

    initial_sparsity: float = 0.0
    initial_distribution: str | None = None
    """That of the random start; by default ERK, or uniform where ``distribution`` is."""
    regrow: float = 0.5
    regrow_end: float = 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("initial_sparsity", self.initial_sparsity)
        check_ratio("regrow", self.regrow)
        check_ratio("regrow_end", self.regrow_end)
        if self.initial_sparsity > self.sparsity:
            raise ValueError(
                f"initial_sparsity={self.initial_sparsity!r}: must not be above the final sparsity={self.sparsity!r}"
            )
        if self.initial_distribution is not None:
            allowed = ("uniform",) if self.distribution == "uniform" else tuple(DISTRIBUTIONS)
            check_choice("initial_distribution", self.initial_distribution, allowed)  # layers never grow denser again

    @property
    def sparsity_at_start(self) -> float:
        return self.initial_sparsity

    def begin(self, net: SparseNet) -> None:
        super().begin(net)
        if self.initial_sparsity > 0:
            net.sprout(self.initial_sparsity, self.among_layers or distribution(self.initial_distribution or "erk"))

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.prune_to(self.target(clock), self.prune_score, self.among_layers)  # Eq. 1
        if clock.step < clock.total():  # weights grown after the last step would never be trained
            net.zero_pruned()
            net.regenerate(self.regrow_ratio(clock), drop=magnitude, grow=gradient)  # Eq. 2 and 3

    def regrow_ratio(self, clock: Clock) -> float:
        """r_t, the share of each layer's active weights to drop and regrow."""
        return cosine(self.regrow, self.regrow_end, clock.progress)

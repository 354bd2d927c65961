"""Deep-R: deep rewiring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.checks import check_count, check_number
from granet.clock import Clock, Time
from granet.distributions import distribution
from granet.methods.base import Method, end_step
from granet.methods.deep_r.langevin import fix_signs, walk
from granet.methods.registry import register
from granet.net import SparseNet
from granet.scores import random


@register(
    "deep-r",
    paper="Bellec et al. 2018, arXiv 1711.05136",
    score="a change of sign",
    growth="random",
    cost="one byte per weight, noise and a mask update on every step",
    sparse_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class DeepR(Method):
    """Deep rewiring: noise and an L1 drift after every step; a weight that crosses zero goes, a random one comes.

    Every potential connection has a sign that never changes, and a weight is active only on that side of zero. A new
    connection starts at zero. Each layer keeps its number of connections exactly. The noise is proportional to the
    learning rate, see :func:`granet.methods.deep_r.langevin.walk`. A block or filter crosses zero when the sum of its
    weights, each times its sign, does; under N:M and fan-in each group draws as many weights as it has lost.
    """

    distribution: str = "erk"
    end: Time = "100%"
    """No rewiring, noise or drift from here on."""
    l1: float = 1e-5
    """alpha, the drift toward zero per unit of learning rate."""
    noise: float = 1e-5
    """Standard deviation of the noise per unit of learning rate."""
    log_every: int = 1000
    """Masks change at every step; only the multiples of this go into the history."""

    needs_rate: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        distribution(self.distribution)
        check_count("log_every", self.log_every)
        check_number("l1", self.l1, least=0)
        check_number("noise", self.noise, least=0)

    def begin(self, net: SparseNet) -> None:
        net.sprout(self.sparsity, distribution(self.distribution))
        fix_signs(net)

    def updates(self, clock: Clock) -> range:
        end = end_step(clock, self.end)
        if end < 2:
            raise ValueError(f"end={self.end!r}: must leave at least one step to rewire after, it is step {end}")
        return range(1, end)

    def logged(self, clock: Clock) -> bool:
        return clock.step % self.log_every == 0

    def update(self, net: SparseNet, clock: Clock) -> None:
        moved, crossed = walk(net, self.l1, self.noise)
        net.move_weights(moved)
        gone = net.remove(crossed)
        net.zero_pruned()  # a weight that is drawn again at once starts without momentum
        net.grow(gone, random)

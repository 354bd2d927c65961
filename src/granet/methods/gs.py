"""GS: iterative magnitude pruning with a global threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.checks import check_count
from granet.clock import Clock, Time
from granet.methods.base import Method, end_step
from granet.methods.registry import register
from granet.net import SparseNet
from granet.schedules import geometric
from granet.scores import magnitude


@register(
    "gs",
    paper="Han et al. 2015, arXiv 1506.02626; as named in Liu et al. 2021, arXiv 2106.10404",
    score="magnitude",
    distributed="global",
    dense_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class GS(Method):
    """Iterative magnitude pruning with one threshold for all layers: train, prune, retrain what is left, and again.

    There are ``rounds`` prunings, evenly spaced after ``start`` and up to ``prune_end``. Each prunes the same share of
    the weights that are left: after k of n rounds the density is (1 - s)^(k/n). Pruned weights never return.
    """

    start: Time = "25%"
    prune_end: Time = "75%"
    rounds: int = 10

    takes_pattern: ClassVar[bool] = True
    regrows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("rounds", self.rounds)

    def begin(self, net: SparseNet) -> None:
        """Start dense."""

    def target(self, clock: Clock) -> float:
        done = max(0, clock.step - clock.steps(self.start)) // self._period(clock)
        return geometric(self.sparsity, done / self.rounds)

    def updates(self, clock: Clock) -> range:
        start, end = clock.steps(self.start, "start"), end_step(clock, self.prune_end, "prune_end")
        if end - start < self.rounds:
            raise ValueError(
                f"rounds={self.rounds!r}: must fit between start={self.start!r} and prune_end={self.prune_end!r} "
                f"(steps {start} and {end})"
            )
        period = self._period(clock)
        # On to the end of training: a round that was skipped is made up for.
        return range(start + period, max(clock.total(), start + self.rounds * period + 1), period)

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.prune_to(self.target(clock), magnitude)

    def _period(self, clock: Clock) -> int:
        """Optimizer steps of one round."""
        return (clock.steps(self.prune_end) - clock.steps(self.start)) // self.rounds

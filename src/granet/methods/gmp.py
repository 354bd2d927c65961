"""Gradual magnitude pruning, and the schedule it shares with GraNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.checks import check_choice, check_share
from granet.clock import Clock, Time
from granet.distributions import PRUNING_DISTRIBUTIONS, Distribution, Uniform
from granet.methods.base import Method, end_step, periodic, shorter_period
from granet.methods.registry import register
from granet.net import SparseNet
from granet.schedules import cubic
from granet.scores import PRUNE_SCORES, Score


@dataclass(frozen=True, kw_only=True)
class Gradual(Method):
    """Sparsity that rises along the cubic schedule from ``start`` to ``prune_end``.

    Updates come at multiples of ``every``, and the schedule counts them, not steps. With c = step // every, c_0 its
    value at ``start``, and n the number of updates after ``start`` and up to ``prune_end``, s_t = s_f + (s_i - s_f)(1 -
    (c - c_0)/n)^3. The last of these updates has c = c_0 + n, so the final sparsity is reached exactly. At ``start``
    itself s_t = s_i: nothing is pruned.
    """

    start: Time = 0
    prune_end: Time = "50%"
    every: Time = 1000
    distribution: str = "global"
    """``"global"`` ranks all layers together; ``"uniform"`` gives every layer the same sparsity."""
    last_density: float = 0.2
    """Under the uniform distribution, the last layer is never thinner than this."""
    dense_first: bool = False
    """Under the uniform distribution, keep the first layer dense."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("distribution", self.distribution, PRUNING_DISTRIBUTIONS)
        check_share("last_density", self.last_density)
        if self.dense_first and ":" in self.pattern:
            raise ValueError(
                f"dense_first=True: must be False with pattern={self.pattern!r}, which thins all layers alike; "
                "leave the first layer dense with exclude"
            )

    @property
    def among_layers(self) -> Distribution | None:
        """The distribution as a function: None when all layers are ranked together."""
        return None if self.distribution == "global" else Uniform(self.last_density, self.dense_first)

    def begin(self, net: SparseNet) -> None:
        """Start dense. A final sparsity that the layers cannot reach is refused now, not in the middle of training."""
        if self.among_layers is not None:
            net.shares(self.sparsity, self.among_layers)

    def target(self, clock: Clock) -> float:
        period = clock.steps(self.every)
        first, last = clock.steps(self.start) // period, clock.steps(self.prune_end) // period
        return cubic(self.sparsity_at_start, self.sparsity, max(0.0, (clock.step // period - first) / (last - first)))

    @property
    def sparsity_at_start(self) -> float:
        return 0.0

    def updates(self, clock: Clock) -> range:
        start, end = clock.steps(self.start, "start"), end_step(clock, self.prune_end, "prune_end")
        if end <= start:
            raise ValueError(
                f"prune_end={self.prune_end!r}: must be after start={self.start!r} (steps {end} and {start})"
            )
        window = periodic(clock, self.every, self.start, end + 1)
        if window[-1] // window.step == start // window.step:
            raise ValueError(
                f"every={self.every!r}: must fit between start={self.start!r} and prune_end={self.prune_end!r}"
                f"{shorter_period(start, end + 1)}"
            )
        # On to the end of training: updates after the window regenerate, or make up for one that was skipped.
        return range(window.start, max(clock.total(), window[-1] + 1), window.step)


@register(
    "gmp",
    paper="Zhu & Gupta 2017, arXiv 1710.01878; as run in Liu et al. 2021, arXiv 2106.10404",
    score="magnitude or LAMP",
    dense_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class GMP(Gradual):
    """Gradual magnitude pruning from a dense start; pruned weights are zeroed and never return."""

    score: str = "magnitude"
    """What pruning ranks weights by: ``"magnitude"``, or ``"lamp"``, which also decides how many each layer keeps."""

    takes_pattern: ClassVar[bool] = True
    regrows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("score", self.score, tuple(PRUNE_SCORES))

    @property
    def prune_score(self) -> Score:
        return PRUNE_SCORES[self.score]

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.prune_to(self.target(clock), self.prune_score, self.among_layers)

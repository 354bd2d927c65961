"""One-shot pruning of the net as it stands, with and without regeneration: the probes of pruning plasticity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.checks import check_choice, check_rate
from granet.clock import Clock
from granet.distributions import PRUNING_DISTRIBUTIONS, PruningDistribution
from granet.methods.base import Method
from granet.methods.registry import register
from granet.net import SparseNet
from granet.scores import gradient, magnitude

PAPER = "Liu et al. 2021, arXiv 2106.10404"


@register(
    "prune-once",
    paper=PAPER,
    score="magnitude",
    knob="`rate`, a share of what is left",
    before_training=True,
)
@dataclass(frozen=True, kw_only=True)
class PruneOnce(Method):
    """Prune a share of the weights that the net has left, once, by magnitude; the masks then stay.

    Weights that are zero at the start count as pruned already: a net that was trained sparse keeps its zeros, and
    ``rate`` is a share of the others. So the sparsity goes from s to 1 - (1 - s)(1 - rate).
    """

    sparsity: float = 0.0
    """Has no effect here: ``rate`` decides."""
    rate: float = 0.5
    """Share of the weights left that are pruned, in (0, 1)."""
    distribution: PruningDistribution = "global"
    """``"global"`` ranks all layers together; ``"uniform"`` prunes the same share of each layer."""

    takes_pattern: ClassVar[bool] = True
    takes_groups: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate("rate", self.rate)
        check_choice("distribution", self.distribution, PRUNING_DISTRIBUTIONS)

    @property
    def has_target(self) -> bool:
        return False

    def begin(self, net: SparseNet) -> None:
        net.probe.finite({layer.name: layer.weight for layer in net.layers}, "model")
        net.keep_nonzero()
        left = net.counts
        net.prune_share(self.rate, magnitude, self.distribution)
        net.memory["pruned"] = left - net.counts


@register(
    "prune-regrow",
    paper=PAPER,
    score="magnitude",
    growth="gradient, once",
    knob="`rate`, all of which grows back",
    cost="a copy of the gradients of one step",
    before_training=True,
)
@dataclass(frozen=True, kw_only=True)
class PruneAndRegenerate(PruneOnce):
    """Prune once, then let each layer regrow as many weights as it lost, those with the largest gradients.

    The gradient is that of the pruned net on the first batch after pruning. Regrown weights begin at zero with a fresh
    optimizer state, even those that were just pruned: in a dense net the smallest weights are set to zero, and all
    weights go on learning.
    """

    needs_gradient: ClassVar[bool] = True

    def updates(self, clock: Clock) -> range:
        return range(1, 2)

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.grow(net.of_movable(net.memory["pruned"]), gradient)

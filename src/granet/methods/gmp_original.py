"""Gradual magnitude pruning as first published: only masks change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer

from granet.clock import Clock
from granet.hidden import FrozenWeights, Hidden
from granet.methods.gmp import Gradual
from granet.methods.registry import register
from granet.net import SparseNet
from granet.scores import hidden_magnitude
from granet.weights import SparseLayer


@register(
    "gmp-original",
    paper="Zhu & Gupta 2017, arXiv 1710.01878; Gale et al. 2019, arXiv 1902.09574",
    score="magnitude of the hidden weights",
    growth="magnitude of the hidden weights, which are not trained",
    distributed="the first layer dense",
    cost="a second copy of the weights",
    dense_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class GMPOriginal(Gradual):
    """Gradual magnitude pruning that only masks: a pruned weight keeps its hidden value and may return.

    A hidden weight does not change at all: neither gradient nor momentum nor weight decay reaches it. Layers have the
    same sparsity, but the first stays dense and the last is at most 80 % sparse (Gale et al.); the others make up for
    both, so that the whole net has the sparsity asked for. The defaults of ``start``, ``prune_end`` and ``every`` are
    ours: the papers choose them for each network.
    """

    distribution: str = "uniform"
    dense_first: bool = True

    hidden: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    def hide(self, model: nn.Module, layers: Sequence[SparseLayer], optimizer: Optimizer) -> Hidden:
        return FrozenWeights(layers)

    def update(self, net: SparseNet, clock: Clock) -> None:
        if clock.step <= clock.steps(self.prune_end):
            net.reselect(self.target(clock), hidden_magnitude, self.among_layers)
        else:  # masks are fixed from here on, unless an update that was skipped must be made up for
            net.prune_to(self.target(clock), hidden_magnitude, self.among_layers)

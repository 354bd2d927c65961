"""Learning-rate rewinding: the mask and the values of a trained net, the schedule of an untrained one."""

from __future__ import annotations

from dataclasses import dataclass

from granet.methods.lth import LTH
from granet.methods.registry import register
from granet.net import SparseNet


@register(
    "lrr",
    paper="Renda et al. 2020, arXiv 2003.02389",
    score="magnitude in the first run",
    distributed="global",
    cost="a first run",
)
@dataclass(frozen=True, kw_only=True)
class LRR(LTH):
    """Learning-rate rewinding: prune a finished first run by magnitude and train it on, over the whole schedule again.

    The model takes over the first run's parameters and buffers, batch-norm statistics included; without ``trained`` it
    is that run itself. The optimizer should be a fresh one, and the learning rate starts again from the top.
    """

    def begin(self, net: SparseNet) -> None:
        net.start = net.probe.state_to_start_from()
        self._keep_largest(net, net.start)

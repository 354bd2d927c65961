"""Lottery tickets: the mask of a trained net, the values of an untrained one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

from granet.distributions import kept
from granet.methods.base import Method
from granet.methods.registry import register
from granet.net import SparseNet
from granet.probe import Tensors
from granet.scores import given


@register(
    "lth",
    paper="Frankle & Carbin 2019, arXiv 1803.03635",
    score="magnitude in the first run",
    distributed="global",
    cost="a first run",
)
@dataclass(frozen=True, kw_only=True)
class LTH(Method):
    """Lottery ticket: keep the weights that a finished first run made largest, at the values this model has now.

    With the first run's initial values this is the lottery ticket; with those of an early checkpoint, rewinding
    (Frankle et al. 2020, arXiv 1912.05671); with any other initial values it tests whether the mask alone is what was
    learned. A sparse first run passes on its mask, because its zeros rank last.
    """

    needs_trained: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    def begin(self, net: SparseNet) -> None:
        self._keep_largest(net, net.probe.trained_state())

    def _keep_largest(self, net: SparseNet, state: Tensors) -> None:
        trained = net.probe.finite_weights(state)
        nonzero = sum(int(weight.count_nonzero()) for weight in trained.values())
        keep = kept(net.numel, self.sparsity)
        if nonzero < keep:
            warnings.warn(
                f"granet: sparsity={self.sparsity!r} keeps {keep} weights, but only {nonzero} are not zero in the "
                "trained run; the others are the first of its zeros",
                stacklevel=3,
            )
        net.prune_to(self.sparsity, given(trained))

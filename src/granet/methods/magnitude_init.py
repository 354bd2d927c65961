"""Magnitude pruning of the initial weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.methods.base import Method
from granet.methods.registry import register
from granet.net import SparseNet
from granet.scores import magnitude


@register(
    "magnitude-init",
    paper="Frankle et al. 2021, arXiv 2009.08576",
    score="magnitude",
    distributed="global",
    before_training=True,
)
@dataclass(frozen=True, kw_only=True)
class MagnitudeInit(Method):
    """Prune before training the smallest initial weights of the whole net: what other scores must beat.

    Layers whose initial weights are small lose most, so at high sparsity the widest layers may keep hardly any.
    """

    takes_pattern: ClassVar[bool] = True

    def begin(self, net: SparseNet) -> None:
        net.probe.finite({layer.name: layer.weight for layer in net.layers}, "model")
        net.prune_to(self.sparsity, magnitude)

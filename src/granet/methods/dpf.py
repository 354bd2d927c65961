"""DPF: dynamic pruning with feedback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer

from granet.clock import Clock, Time
from granet.hidden import FedBackWeights, Hidden
from granet.methods.base import DenseGradient
from granet.methods.gmp import Gradual
from granet.methods.registry import register
from granet.net import SparseNet
from granet.scores import hidden_magnitude
from granet.weights import SparseLayer


@register(
    "dpf",
    paper="Lin et al. 2020, arXiv 2006.07253",
    score="magnitude of the hidden weights",
    growth="magnitude of the hidden weights, which are trained on",
    cost="a second copy of the weights",
    dense_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class DPF(Gradual):
    r"""Dynamic pruning with feedback: the gradient at the masked weights moves the dense ones, masks follow them.

    .. math:: w_{t+1} = w_t - \gamma_t \nabla f(m_t \odot w_t)

    where m_t keeps the largest :math:`|w_t|` and is chosen anew every 16 steps, up to the end of training.
    """

    every: Time = 16

    hidden: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    @property
    def dense_gradient(self) -> DenseGradient:
        return "always"

    def hide(self, model: nn.Module, layers: Sequence[SparseLayer], optimizer: Optimizer) -> Hidden:
        return FedBackWeights(layers)

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.reselect(self.target(clock), hidden_magnitude, self.among_layers)

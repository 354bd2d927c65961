"""Wanda: prune a finished model by its weights and by what they are multiplied by."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from granet.checks import check_count
from granet.distributions import Uniform
from granet.error_line import and_more
from granet.methods.base import Method
from granet.methods.registry import register
from granet.net import SparseNet
from granet.probe import Batch, LayerCall, Probe, Tensors, watch_calls
from granet.scores import given
from granet.weights import SparseLayer


@register(
    "wanda",
    paper="Sun et al. 2023, arXiv 2306.11695",
    score="size of w times the norm of its input",
    distributed="the same for every output",
    cost="a first run, a pass forward and the products of each layer on `batch_count` batches",
)
@dataclass(frozen=True, kw_only=True)
class Wanda(Method):
    r"""Wanda: each output of a finished model keeps the weights that matter most for what it was given.

    .. math:: S_{ij} = |W_{ij}| \cdot \|X_j\|_2

    where X_j is what weight j of an output was multiplied by on ``batch_count`` batches: one input of a linear layer,
    one input channel at one place of a convolution's kernel. The model runs in evaluation mode. Weights are compared
    within each output alone, by ``pattern="fan-in"``, and every output has the same sparsity; with N:M they are
    compared in each group of M, with single weights, blocks or filters within each layer. The weights that stay keep
    their values.

    What stacked experts and the projections in ``nn.MultiheadAttention`` are multiplied by is not seen: their weights
    are compared by magnitude, which is said once.
    """

    pattern: str = "fan-in"
    batch_count: int = 4
    """How many batches the norms are taken over; their targets are not used."""

    needs_batches: ClassVar[bool] = True
    needs_trained: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("batch_count", self.batch_count)

    def begin(self, net: SparseNet) -> None:
        probe = net.probe
        net.start = probe.state_to_start_from()
        weights = probe.finite_weights(net.start)
        own = probe.state()
        state = {name: net.start.get(name, value).to(value) for name, value in own.items()}
        squares = squared_inputs(probe, state, probe.draw(self.batch_count))
        blind = [name for name in weights if name not in squares or not bool(squares[name].any())]
        if blind:
            warnings.warn(
                f"granet: {blind[0]}{and_more(blind)}: wanda does not see what these weights are multiplied by, so "
                "they are compared by magnitude",
                stacklevel=3,
            )
        scores = {
            name: weight.abs() if name in blind else weight.abs().to(squares[name]) * squares[name].sqrt()
            for name, weight in weights.items()
        }
        net.prune_to(self.sparsity, given(probe.finite(scores, "batches")), Uniform())


def squared_inputs(probe: Probe, state: Tensors, batches: Sequence[Batch]) -> Tensors:
    """For each weight that is seen at work, the sum of the squares of all that it is multiplied by."""
    sums: Tensors = {}

    def add(layer: SparseLayer, call: LayerCall, outputs: Tensor) -> None:
        squares = call.squared_inputs(layer.weight.detach())
        sums[layer.name] = sums[layer.name].add_(squares) if layer.name in sums else squares

    watch_calls(probe, state, batches, add)
    return sums

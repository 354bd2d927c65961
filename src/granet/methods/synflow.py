"""SynFlow: prune before training, without data, the connections that carry least flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from granet.checks import check_count
from granet.methods.base import Method
from granet.methods.registry import register
from granet.model_inputs import each_tensor
from granet.net import SparseNet
from granet.probe import Probe, Tensors
from granet.schedules import geometric
from granet.scores import given


@register(
    "synflow",
    paper="Tanaka et al. 2020, arXiv 2006.05467",
    score="w * dR/dw, the flow through it",
    distributed="global",
    cost="100 data-free passes in float64, before training",
    before_training=True,
)
@dataclass(frozen=True, kw_only=True)
class SynFlow(Method):
    """Prune before training, in many small rounds, what carries least flow from the inputs to the outputs.

    With all parameters and buffers replaced by their absolute values, an input of ones gives R = sum of the outputs,
    and a weight's score is w dR/dw. Round k of n prunes the whole net to density d^(k/n), where d is the final one, and
    the next round scores what is left. The scores of every layer add up to the same sum, so with as many as 100 rounds
    no layer is ever emptied. Scores are computed in evaluation mode and float64, because products over many layers grow
    large. Only the shape of the first batch is used.
    """

    rounds: int = 100

    needs_batches: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("rounds", self.rounds)

    def begin(self, net: SparseNet) -> None:
        ((inputs, _),) = net.probe.draw(1)
        ones = each_tensor(_ones, inputs)
        for k in range(1, self.rounds + 1):
            scores = synaptic_flow(net.probe, ones, net.proposed())
            net.prune_to(geometric(self.sparsity, k / self.rounds), given(net.probe.finite(scores, "model")))


def synaptic_flow(probe: Probe, ones: Any, masks: Mapping[str, Tensor]) -> Tensors:
    """w dR/dw of every sparsified weight, with the masks on."""
    state = {
        name: value.double().abs() if value.is_floating_point() else value for name, value in probe.state().items()
    }
    weights = {name: (value * masks[name]).requires_grad_() for name, value in probe.weights_of(state).items()}

    def slopes_of(outputs: Any) -> Sequence[Tensor]:
        if not isinstance(outputs, Tensor):
            raise ValueError(f"model: synflow needs one tensor of outputs, not {type(outputs).__name__}")
        return torch.autograd.grad(outputs.sum(), list(weights.values()), allow_unused=True, materialize_grads=True)

    with probe.mode(training=False), torch.enable_grad():
        slopes = probe.call(probe.with_weights(state, weights), ones, slopes_of)
    return {name: weight.detach() * slope for (name, weight), slope in zip(weights.items(), slopes, strict=True)}


def _ones(inputs: Tensor) -> Tensor:
    """A batch of one example, all ones."""
    if not inputs.is_floating_point():
        raise ValueError(f"batches: synflow feeds ones, so the inputs must be floating-point, not {inputs.dtype}")
    return torch.ones((1, *inputs.shape[1:]), dtype=torch.float64, device=inputs.device)

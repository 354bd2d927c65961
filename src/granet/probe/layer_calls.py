"""The calls of a model's layers on a few batches: what each sparse weight is multiplied by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from granet.probe.modes import run_with
from granet.probe.probe import Batch, Probe, Tensors, full_precision
from granet.weights import SparseLayer, linear_maps


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer that multiplies its input by a weight."""

    module: nn.Module
    others: Tensors
    """The layer's parameters other than the weight."""
    inputs: Tensor
    more: tuple[Any, ...]
    """The arguments after the inputs."""
    named: dict[str, Any]

    def outputs(self, weight: Tensor, inputs: Tensor) -> Tensor:
        """The layer's outputs with that weight on these inputs; hooks are not run, theirs or ours."""
        return run_with(self.module, {**self.others, "weight": weight}, (inputs, *self.more), self.named)

    def squared_inputs(self, weight: Tensor) -> Tensor:
        """For each weight, the sum of the squares of all inputs that it multiplies.

        Outputs are linear in the weights, so this is the derivative of their sum where the inputs are squared: whatever
        way the weight lies, and whatever kernel, stride and padding a convolution has.
        """
        with torch.enable_grad(), torch.autocast(weight.device.type, enabled=False):
            leaf = torch.zeros_like(full_precision(weight)).requires_grad_()
            total = self.outputs(leaf, self.inputs.square()).sum()
            return torch.autograd.grad(total, leaf)[0]


Note = Callable[[SparseLayer, LayerCall, Tensor], None]
"""Told of a sparse weight, a call of a layer that it is in, and what that put out."""


@torch.no_grad()
def watch_calls(probe: Probe, state: Tensors, batches: Sequence[Batch], note: Note) -> None:
    """Run the model with that state, in evaluation mode, and tell ``note`` of each call of a sparse weight's layers.

    A layer may be called more than once, and a weight may belong to several layers. Weights of other modules, such as
    the projections of an attention, are not told of; nor is a layer that its parent does not call as a module.
    """
    maps = linear_maps(probe.model)
    with ExitStack() as hooks:
        for layer in probe.layers:
            for module in maps.get(id(layer.weight), ()):
                hooks.enter_context(module.register_forward_hook(partial(_tell, note, layer), with_kwargs=True))
        with probe.mode(training=False):
            for inputs, _ in batches:
                probe.call(state, inputs)


def _tell(
    note: Note, layer: SparseLayer, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], outputs: Tensor
) -> None:
    others = {name: full_precision(value.detach()) for name, value in module._parameters.items() if value is not None}
    del others["weight"]
    named = dict(named)
    first, *more = given or (named.pop(next(iter(named))),)
    inputs = full_precision(first.detach())  # in half precision if the model uses autocast
    note(layer, LayerCall(module, others, inputs, tuple(more), named), outputs)

"""The inputs of each layer of a model on a few batches, and which batch norm and ReLU its outputs go through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from granet.probe import Batch, Probe, Tensors, full_precision
from granet.weights import linear_maps

_RELU = {functional.relu, functional.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}


@dataclass
class Seen:
    """One call of a convolution or linear layer: its inputs, and what becomes of its outputs."""

    module: nn.Module
    others: Tensors
    """The layer's parameters other than the weight."""
    inputs: Tensor
    normalise: Callable[[Tensor], Tensor] | None = None
    """The batch norm that the outputs go through, if any."""
    rectified: bool = False
    """Whether the outputs then go through a ReLU."""

    def preactivation(self, weight: Tensor) -> Tensor:
        """z: the layer's outputs with that weight, after the batch norm that follows, if one does."""
        outputs: Tensor = functional_call(self.module, {"weight": weight, **self.others}, (self.inputs,))
        return outputs if self.normalise is None else self.normalise(outputs)


@torch.no_grad()
def watch(probe: Probe, state: Tensors, batches: Sequence[Batch]) -> dict[str, list[Seen]]:
    """Run the model with that state, in evaluation mode, and note every call of each sparsified layer.

    A layer may be called more than once, and a weight may belong to several layers: all their outputs depend on it.
    """
    modules = _modules(probe)
    seen: dict[str, list[Seen]] = {name: [] for name in modules}
    following = _NormsAndReLUs()
    hooks = [
        module.register_forward_hook(partial(_note, seen[name], following), with_kwargs=True)
        for name, owners in modules.items()
        for module in owners
    ]
    try:
        with probe.mode(training=False), following:
            for inputs, _ in batches:
                probe.call(state, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _modules(probe: Probe) -> dict[str, list[nn.Module]]:
    """The convolution or linear layers of each sparsified weight: one, unless it is tied."""
    maps = linear_maps(probe.model)
    if others := tuple(layer.name for layer in probe.layers if id(layer.weight) not in maps):
        raise ValueError(
            f"include: {probe.method} takes weights of convolutions and linear layers only; exclude={others!r} leaves "
            "the others dense"
        )
    return {layer.name: maps[id(layer.weight)] for layer in probe.layers}


def _note(
    calls: list[Seen],
    following: _NormsAndReLUs,
    module: nn.Module,
    given: tuple[Any, ...],
    named: dict[str, Any],
    outputs: Tensor,
) -> None:
    inputs: Tensor = given[0] if given else named["input"]
    others = {name: value.detach() for name, value in module._parameters.items() if value is not None}
    del others["weight"]
    one = Seen(module, others, full_precision(inputs.detach()))  # in half precision if the model uses autocast
    calls.append(one)
    following.follow(outputs, one)


class _NormsAndReLUs(TorchFunctionMode):
    """Sees every call of batch norm and ReLU, as a module or as a function, and finds whose outputs it was given."""

    def __init__(self) -> None:
        super().__init__()
        self._from: dict[int, tuple[Tensor, int, Seen]] = {}

    def follow(self, outputs: Tensor, one: Seen) -> None:
        self._from[id(outputs)] = outputs, outputs._version, one  # held, so that no other tensor gets its id

    def _whose(self, value: Any) -> Seen | None:
        """The call whose outputs these are. None once they were written to, as when a shortcut is added in place."""
        outputs, version, one = self._from.get(id(value), (None, 0, None))
        return one if outputs is not None and outputs._version == version else None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        one = self._whose(args[0]) if args else None
        outputs = func(*args, **kwargs)
        if one is not None and func is functional.batch_norm:
            rest = args[1:]
            one.normalise = lambda z: functional.batch_norm(z, *rest, **kwargs)
            self.follow(outputs, one)
        elif one is not None and func in _RELU:
            one.rectified = True
        return outputs

"""The inputs of each layer of a model on a few batches, and which batch norm and ReLU its outputs go through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from granet.probe import Batch, LayerCall, Probe, Tensors, watch_calls
from granet.weights import SparseLayer, linear_maps

_RELU = {functional.relu, functional.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}


@dataclass
class Seen:
    """One call of a layer, and what becomes of its outputs."""

    call: LayerCall
    normalise: Callable[[Tensor], Tensor] | None = None
    """The batch norm that the outputs go through, if any."""
    rectified: bool = False
    """Whether the outputs then go through a ReLU."""

    def preactivation(self, weight: Tensor) -> Tensor:
        """z: the layer's outputs with that weight, after the batch norm that follows, if one does."""
        outputs = self.call.outputs(weight, self.call.inputs)
        return outputs if self.normalise is None else self.normalise(outputs)


def watch(probe: Probe, state: Tensors, batches: Sequence[Batch]) -> dict[str, list[Seen]]:
    """The calls of each sparse weight's layers, when the model runs with that state in evaluation mode.

    A layer may be called more than once, and a weight may belong to several layers: all their outputs depend on it.
    """
    maps = linear_maps(probe.model)
    if others := tuple(layer.name for layer in probe.layers if id(layer.weight) not in maps):
        raise ValueError(
            f"include: {probe.method} takes weights of convolutions and linear layers only; exclude={others!r} leaves "
            "the others dense"
        )
    seen: dict[str, list[Seen]] = {layer.name: [] for layer in probe.layers}
    following = _NormsAndReLUs()

    def note(layer: SparseLayer, call: LayerCall, outputs: Tensor) -> None:
        one = Seen(call)
        seen[layer.name].append(one)
        following.follow(outputs, one)

    with following:
        watch_calls(probe, state, batches, note)
    return seen


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

"""What the units of a model output on a fixed batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from granet.observers.base import Watched
from granet.probe.modes import uncompiled

T = TypeVar("T")

ACTIVATIONS = {
    *(functional.relu, functional.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, functional.relu6),
    *(functional.leaky_relu, functional.leaky_relu_, functional.elu, functional.elu_, functional.prelu),
    *(functional.rrelu, functional.rrelu_, functional.selu, functional.selu_, functional.celu, functional.celu_),
    *(torch.rrelu, torch.rrelu_, torch.selu, torch.selu_, torch.celu, torch.celu_, torch.prelu, Tensor.prelu),
    *(functional.threshold, torch.threshold, torch.threshold_, functional.softplus),
    *(functional.gelu, functional.silu, functional.mish, functional.hardswish, functional.hardtanh),
    *(functional.hardtanh_, functional.tanh, torch.tanh, torch.tanh_, Tensor.tanh, Tensor.tanh_),
}
"""The functions whose outputs are those of hidden units. A sigmoid mostly opens a gate, so it is not among them."""

AXES = {
    **dict.fromkeys((torch.conv1d, torch.conv_transpose1d), -2),
    **dict.fromkeys((torch.conv2d, torch.conv_transpose2d), -3),
    **dict.fromkeys((torch.conv3d, torch.conv_transpose3d), -4),
    **dict.fromkeys((functional.linear, torch.matmul, Tensor.matmul, Tensor.__matmul__), -1),
}
"""The dimension of a layer's outputs that runs over units."""

MOVERS = {
    *(torch.permute, torch.transpose, torch.movedim, torch.moveaxis, torch.swapaxes, torch.swapdims, torch.reshape),
    *(Tensor.permute, Tensor.transpose, Tensor.movedim, Tensor.moveaxis, Tensor.swapaxes, Tensor.swapdims),
    *(torch.t, Tensor.t, Tensor.reshape, Tensor.view, torch.einsum),
    *(Tensor.mT.__get__, Tensor.T.__get__),  # type: ignore[attr-defined]
}
"""Functions that may move that dimension without changing the number of dimensions."""


def look_at_activations(watched: Watched, look: Callable[[Tensor], T]) -> list[T]:
    """Run the model once, in evaluation mode; what ``look`` returns for each activation, in the order of the calls.

    ``look`` is given [places, units]: a row for each image and each position in it. Units are the channels of the
    convolution, or the outputs of the linear layer, that the activation follows. Where dimensions were rearranged
    since, units are along dimension 1 of an output with four or more dimensions, and along the last one otherwise.
    """
    with uncompiled(), _Looking(look) as looking:
        watched.run()
    seen: list[T] = looking.seen
    return seen


class _Looking(TorchFunctionMode, Generic[T]):
    """Sees every call of an activation, as a module or as a function."""

    def __init__(self, look: Callable[[Tensor], T]) -> None:
        super().__init__()
        self._look = look
        self.seen: list[T] = []
        self._axes = WeakTensorKeyDictionary()  # the unit dimension of layers' outputs and what is computed from these

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        if isinstance(outputs, Tensor):
            axis = AXES.get(func) or self._inherited(func, args, outputs.ndim)
            if axis is not None:
                self._axes[outputs] = axis
            if func in ACTIVATIONS:
                units = outputs.movedim((1 if outputs.ndim > 3 else -1) if axis is None else axis, -1)
                self.seen.append(self._look(units.reshape(-1, units.shape[-1])))  # now: it may be written over later
        return outputs

    def _inherited(self, func: Callable[..., Any], args: tuple[Any, ...], dimensions: int) -> int | None:
        if func in MOVERS:
            return None
        alike = (one for one in tree_leaves(args) if isinstance(one, Tensor) and one.ndim == dimensions)
        return next((self._axes[one] for one in alike if one in self._axes), None)

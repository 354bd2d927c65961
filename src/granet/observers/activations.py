"""What the units of a model output on a fixed batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from granet.observers.base import Watched

T = TypeVar("T")

ACTIVATIONS = {
    *(functional.relu, functional.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_),
    *(functional.relu6, functional.leaky_relu, functional.elu, functional.gelu, functional.silu, functional.mish),
    *(functional.hardswish, functional.hardtanh, functional.tanh, torch.tanh, Tensor.tanh),
}
"""The functions whose outputs are those of hidden units. A sigmoid mostly opens a gate, so it is not among them."""


@torch.no_grad()
def look_at_activations(watched: Watched, look: Callable[[Tensor], T]) -> list[T]:
    """Run the model once, in evaluation mode; the outcomes of ``look`` at each activation, in the order of the calls.

    ``look`` is given [places, units]: a row for each image and each position in it. Units are the channels, dimension
    1, of an output with four or more dimensions, and the last dimension of any other.
    """
    assert watched.images is not None
    with _evaluating(watched.model), _Looking(look) as looking:
        watched.model(watched.images)
    seen: list[T] = looking.seen
    return seen


class _Looking(TorchFunctionMode, Generic[T]):
    """Sees every call of an activation, as a module or as a function."""

    def __init__(self, look: Callable[[Tensor], T]) -> None:
        super().__init__()
        self._look = look
        self.seen: list[T] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        if func in ACTIVATIONS:
            units = outputs.movedim(1, -1) if outputs.ndim > 3 else outputs
            self.seen.append(self._look(units.reshape(-1, units.shape[-1])))  # now: it may be written over later
        return outputs


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training

"""The optimizer's state for inactive weights, found by shape and never by name.

Momentum buffers, moment estimates, accumulators: any floating-point state tensor in the shape of its parameter belongs
to the weights one by one, so it is reset where a weight becomes inactive and a weight grown later starts afresh.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from granet.weights import Masked


class OptimizerState:
    """Finds the optimizer state of weights, and the value it has for a weight that was never trained."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._fresh: dict[nn.Parameter, dict[str, float]] = {}
        for one in self._with_state():
            for group in one.param_groups:
                self._fresh |= dict.fromkeys(group["params"], fresh_state(one, group))

    def of(self, layers: Sequence[Masked]) -> Iterator[tuple[Masked, Tensor, float]]:
        """State tensors with an entry for each weight, and the entry of a weight never trained: mostly zero."""
        states = [one.state for one in self._with_state()]
        for layer in layers:
            fresh = self._fresh.get(layer.weight, {})  # a frozen bias may have joined the optimizer since
            for state in states:
                for key, tensor in _per_weight(state.get(layer.weight, {}), layer.weight):
                    yield layer, tensor, fresh.get(key, 0.0)

    def _with_state(self) -> list[Optimizer]:
        """The optimizer and those it wraps: ZeroRedundancyOptimizer, for one, leaves all state to another inside."""
        return [self._optimizer, *(one for one in vars(self._optimizer).values() if isinstance(one, Optimizer))]


def fresh_state(optimizer: Optimizer, group: dict[str, Any]) -> dict[str, float]:
    """The per-weight state, where not zero, of a weight in that group that never had a gradient.

    Adagrad's accumulator starts at a value the user may choose, and Rprop's step size at the learning rate. It is read
    off a small extra weight, given to an optimizer of the same class and settings; an optimizer that cannot be made or
    stepped this way is assumed to start at zero, as nearly all do.
    """
    takes = inspect.signature(type(optimizer).__init__).parameters
    how = {"foreach", "fused", "capturable", "differentiable"}  # implementations of the same step, some only for GPUs
    settings = {key: group.get(key, value) for key, value in optimizer.defaults.items() if key in takes.keys() - how}
    if "initial_lr" in group and "lr" in settings:
        settings["lr"] = group["initial_lr"]  # a schedule may begin with another one
    with torch.device("cpu"):  # the weight and all that the optimizer makes for it, whatever the default device is
        weight = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))  # the value itself: a narrower state rounds once
        weight.grad = torch.zeros_like(weight)
        try:
            twin = type(optimizer)([weight], **settings)
            if weight not in twin.state:  # made at the first step
                bare = inspect.unwrap(type(twin).step)  # without torch's hooks for all optimizers: they are the user's
                with torch.no_grad():
                    bare(twin)
        except Exception:  # a stranger's class may raise anything
            return {}
    return {
        key: float(tensor[0, 0]) for key, tensor in _per_weight(twin.state.get(weight, {}), weight) if tensor[0, 0] != 0
    }


def _per_weight(state: dict[str, Any], weight: nn.Parameter) -> list[tuple[str, Tensor]]:
    shape = weight.shape
    return [
        (key, value)
        for key, value in state.items()
        if isinstance(value, Tensor) and value.shape == shape and value.is_floating_point()
    ]

"""The optimizer's memory of inactive weights, handled by shape and never by name.

Momentum buffers, moment estimates, accumulators: any floating-point state tensor in the shape of its parameter belongs
to the weights one by one, so it is reset where a weight becomes inactive and a weight grown later starts afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer

from granet.layers import SparseLayer
from granet.masking import zero_inactive


class OptimizerState:
    """Finds and resets the optimizer state of inactive weights."""

    def __init__(self, optimizer: Optimizer, layers: Iterable[SparseLayer]) -> None:
        self._optimizer = optimizer
        self.fresh = {
            (layer.name, key): float(tensor.flatten()[0])
            for layer in layers
            for key, tensor in self._per_weight(layer)
            if bool((tensor == tensor.flatten()[0]).all())
        }
        """What untouched state holds, where an optimizer makes it before its first step (Adagrad may start above 0)."""

    @torch.no_grad()
    def clear_inactive(self, layers: Iterable[SparseLayer]) -> None:
        """Inactive weights get the state of a weight that was never trained: zero, or the optimizer's start value."""
        zeroed = []
        for layer in layers:
            for key, tensor in self._per_weight(layer):
                fresh = self.fresh.get((layer.name, key), 0.0)
                if fresh:
                    tensor.masked_fill_(~layer.mask, fresh)
                else:
                    zeroed.append((tensor, layer.mask))
        zero_inactive(zeroed)

    def _per_weight(self, layer: SparseLayer) -> Iterator[tuple[str, Tensor]]:
        for key, value in self._optimizer.state.get(layer.weight, {}).items():
            if isinstance(value, Tensor) and value.shape == layer.weight.shape and value.is_floating_point():
                yield key, value

"""bfloat16 copies of the weights for the passes, while the optimizer keeps the float32 weights.

Autocast rounds every weight again in each forward pass and widens every gradient in each backward pass. Here the
optimizer writes the rounded weight in its one pass over them, and reads the gradient as it comes: the same numbers bit
for bit, with a third less memory traffic for each weight and two kernels less.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

PLAIN = {nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear}
"""Modules that autocast runs in bfloat16. Of a subclass it is not known what else it does with its weight."""


class RoundedWeights:
    """Rounded copies of the weights of a model's convolutions and linear layers, to be read instead of them.

    A backward pass fills the copies' ``.grad``, not the weights'.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights = {
            f"{name}.weight" if name else "weight": module.weight
            for name, module in model.named_modules()
            if type(module) in PLAIN and module._parameters["weight"] is not None and module.weight.requires_grad
        }
        copies = {id(weight): weight.detach().to(torch.bfloat16) for weight in self._weights.values()}
        self.copies = {name: copies[id(weight)].requires_grad_() for name, weight in self._weights.items()}
        """By the names of the weights."""
        self._by_weight = copies

    def copy_of(self, weight: Tensor) -> Tensor | None:
        return self._by_weight.get(id(weight))

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights as they are now."""
        torch._foreach_copy_(list(self.copies.values()), list(self._weights.values()))

    def forget_gradients(self) -> None:
        for copy in self.copies.values():
            copy.grad = None

    @contextmanager
    def gradients_shown(self) -> Iterator[None]:
        """In this context the weights' ``.grad`` are those of the last backward pass."""
        try:
            for name, weight in self._weights.items():
                gradient = self.copies[name].grad
                weight.grad = None if gradient is None else gradient.to(weight.dtype)
            yield
        finally:
            for weight in self._weights.values():
                weight.grad = None


@contextmanager
def counted_apart(model: nn.Module) -> Iterator[list[Tensor]]:
    """Batch norms do not count their batches here; their counters are yielded, to be counted up all at once.

    One by one that is a kernel for each of them, though nothing reads them where there is a momentum.
    """
    norms = [
        module
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and module.momentum is not None
        and module.num_batches_tracked is not None
    ]
    counters = [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]
    try:
        for norm in norms:
            norm.num_batches_tracked = None
        yield counters
    finally:
        for norm, counter in zip(norms, counters, strict=True):
            norm.num_batches_tracked = counter

"""What growth reads besides the gradient of one batch: a mean over some steps, or an average over all.

The optimizer's own buffers cannot serve: they are masked, and growth needs the gradients of inactive weights. Gradients
come here dense, once for each optimizer step that is taken; steps given up leave no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from granet.weights import SparseLayer, gradients_of


class GradientMemory(Protocol):
    """Decides which steps' gradients are wanted, and keeps what growth needs of them in ``layer.memory``."""

    def begin(self, layers: Sequence[SparseLayer], updates: range) -> None:
        """Allocate the memory; ValueError if it does not fit the times of the updates."""
        ...

    def wants(self, step: int, updates: range) -> bool:
        """Whether the dense gradient of that step is to be remembered."""
        ...

    def remember(self, layers: Sequence[SparseLayer], gradients: Sequence[Tensor]) -> None:
        """Take in the gradients of one step."""
        ...

    def recall(self, layer: SparseLayer) -> Tensor | None:
        """What an update reads instead of the last gradient; None if it reads that gradient."""
        ...

    def updated(self, layers: Sequence[SparseLayer]) -> None:
        """An update is done."""
        ...


@dataclass(frozen=True)
class MeanGradient:
    """The mean gradient of the last ``batch_count`` steps before an update, the update step included.

    RigL's authors suggest it for small batches, whose single gradient is a noisy guide. If a gradient is not finite,
    neither is the mean, and the update is skipped like any other with such a gradient.
    """

    batch_count: int

    def begin(self, layers: Sequence[SparseLayer], updates: range) -> None:
        if self.batch_count > updates.step:
            raise ValueError(
                f"grow_batch_count={self.batch_count!r}: must be at most every={updates.step}, the steps between two "
                "updates"
            )
        _make_room("gradient_mean", layers)

    def wants(self, step: int, updates: range) -> bool:
        soon = bool(updates) and updates.start - self.batch_count < step <= updates[-1]
        return soon and (updates.start - step) % updates.step < self.batch_count

    @torch.no_grad()
    def remember(self, layers: Sequence[SparseLayer], gradients: Sequence[Tensor]) -> None:
        means = [layer.memory["gradient_mean"] for layer in layers]
        torch._foreach_add_(means, list(gradients), alpha=1 / self.batch_count)

    def recall(self, layer: SparseLayer) -> Tensor:
        return layer.memory["gradient_mean"]

    def updated(self, layers: Sequence[SparseLayer]) -> None:
        torch._foreach_zero_([layer.memory["gradient_mean"] for layer in layers])


@dataclass(frozen=True)
class Momentum:
    """The exponential average over all steps, m <- decay * m + (1 - decay) * g: sparse momentum (SNFS).

    The score ``momentum`` reads it; it stays dense. Non-finite elements of a gradient count as zero, since the average
    would never lose them again. Without decay it is the sum of all gradients: only the order of momenta matters, and
    where decay tends to 1, m / (1 - decay) tends to that sum.
    """

    decay: float

    def begin(self, layers: Sequence[SparseLayer], updates: range) -> None:
        _make_room("momentum", layers)

    def wants(self, step: int, updates: range) -> bool:
        return bool(updates) and step <= updates[-1]

    @torch.no_grad()
    def remember(self, layers: Sequence[SparseLayer], gradients: Sequence[Tensor]) -> None:
        averages = [layer.memory["momentum"] for layer in layers]
        finite = [gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for gradient in gradients]
        torch._foreach_mul_(averages, self.decay)
        torch._foreach_add_(averages, finite, alpha=(1 - self.decay) or 1)

    def recall(self, layer: SparseLayer) -> None:
        return None

    def updated(self, layers: Sequence[SparseLayer]) -> None:
        pass


@torch.no_grad()
def take_in(memory: GradientMemory, layers: Sequence[SparseLayer], scale: Tensor | None) -> None:
    """Give ``memory`` the dense gradients of the step just taken, which these layers have; an update will read what it
    recalls.

    Under GradScaler the gradients of a fused optimizer are still multiplied by ``scale``, which may change from step
    to step.
    """
    if not layers:
        return
    gradients = gradients_of(layers)
    if scale is not None:
        gradients = [gradient / scale.to(gradient.device) for gradient in gradients]
    memory.remember(layers, gradients)
    for layer in layers:
        recalled = memory.recall(layer)
        if recalled is not None:
            layer.gradient = recalled


def _make_room(name: str, layers: Sequence[SparseLayer]) -> None:
    """Zeros in the shape of each weight, in float32 at least: half precision cannot add up many small gradients."""
    for layer in layers:
        dtype = torch.promote_types(layer.weight.dtype, torch.float32)
        layer.memory[name] = torch.zeros_like(layer.weight, dtype=dtype, requires_grad=False)

"""What a mask update reads of the step before it: gradients, kept from before they are masked, and learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from granet.hidden import groups_of
from granet.masking import all_finite, take_dense, zero_inactive
from granet.methods.gradient_memory import GradientMemory, take_in
from granet.weights import SparseLayer, gradients_of


class KeptGradients:
    """The gradients that an update reads, kept from before they are masked until the step is over.

    If they are masked before the step is taken, a closure may compute them anew, or more may be added to them. So where
    that can be, hooks on the weights tell when a backward pass brings others. They say only that: under
    DistributedDataParallel they see the gradient of one rank. Gradients themselves are read at the step.
    """

    def __init__(self, layers: Sequence[SparseLayer]) -> None:
        self._layers = layers
        self._copied: set[SparseLayer] = set()
        """Those whose ``gradient`` is a copy."""
        self._finite: Tensor | None = None
        """Whether all the copies are finite, if that was seen on the way."""
        self._hooks: list[RemovableHandle] = []

    def __getstate__(self) -> dict[str, Any]:
        """Without the gradients of an unfinished step, since copies of parameters have no ``.grad`` either."""
        return self.__dict__ | {"_copied": set(), "_finite": None, "_hooks": []}

    def refer(self) -> None:
        """For updates that only ask which layers have a gradient, and whether it is finite: nothing is copied."""
        for layer in self._layers:
            layer.gradient = None if layer.weight.grad is None else layer.weight.grad.detach()

    @torch.no_grad()
    def copy(self) -> None:
        """For growth: keep a dense copy of each gradient, then mask it. May be called several times in a step."""
        new: list[tuple[SparseLayer, Tensor]] = []
        old: list[tuple[SparseLayer, Tensor]] = []
        for layer in self._layers:
            grad = layer.weight.grad
            if grad is None:
                layer.gradient = None
                self._copied.discard(layer)
            else:
                (old if layer in self._copied else new).append((layer, grad))
        self._finite = None
        if old:
            # Inactive weights have gradients though these were masked and no hook told of others: they are set by hand,
            # or came after a step that ended in an exception. What was masked stays so, however it is clipped.
            set_by_hand = _any([(grad != 0) & ~layer.mask for layer, grad in old])
            for layer, grad in old:
                assert layer.gradient is not None
                layer.gradient = torch.where(set_by_hand.to(grad.device), grad, layer.gradient)
            zero_inactive((grad, layer.mask) for layer, grad in old)
        if new:
            copies, finite = take_dense([grad for _, grad in new], [layer.mask for layer, _ in new])
            for place, (layer, _) in enumerate(new):
                layer.keep_gradient(copies, place)
                self._copied.add(layer)
            self._finite = None if old else finite

    def watch(self) -> None:
        """From now on a backward pass may come before the step is over; hooks take time to arm, so not before."""
        if not self._hooks:
            trained = [layer.weight for layer in self._copied if layer.weight.requires_grad]
            self._hooks = [weight.register_hook(lambda _: self.give_back()) for weight in trained]  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def give_back(self) -> None:
        """Others come: let them be added to dense gradients, unless there are none or all were set to zero.

        This is why the hooks are those of before a gradient is accumulated: later the two could not be told apart.
        """
        if pairs := [(layer, layer.weight.grad) for layer in self._copied if layer.weight.grad is not None]:
            some = _any([grad != 0 for _, grad in pairs])
            for layer, grad in pairs:
                assert layer.gradient is not None
                grad.copy_(torch.where(layer.mask | ~some.to(grad.device), grad, layer.gradient))
        self.forget()

    def present(self) -> list[SparseLayer]:
        """The layers that have a gradient: the kept one or, if none was kept, the present ``.grad``."""
        for layer in self._layers:
            if not layer.has_gradient and layer.weight.grad is not None:
                layer.gradient = layer.weight.grad.detach()
        return [layer for layer in self._layers if layer.has_gradient]

    def hand_to(self, memory: GradientMemory, scale: Tensor | None) -> None:
        """Let a method's memory take them in; what an update then reads may be something else."""
        take_in(memory, self.present(), scale)
        self._finite = None

    def all_finite(self, layers: Sequence[SparseLayer], device: torch.device) -> Tensor:
        """Whether the gradients of these layers are; known already if all were copied at once."""
        if self._finite is not None and self._copied.issuperset(layers):
            return self._finite.to(device)
        return all_finite(gradients_of(layers), device)

    def forget(self) -> None:
        for layer in self._layers:
            layer.gradient = None
        self._copied.clear()
        self._finite = None
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


def _any(tensors: Sequence[Tensor]) -> Tensor:
    """Whether any element is True, as a bool tensor; no host wait."""
    return torch.stack([tensor.any().to(tensors[0].device) for tensor in tensors]).any()


def read_rates(optimizer: Optimizer, layers: Sequence[SparseLayer]) -> None:
    """Each layer's ``rate`` becomes the learning rate of its weight's group."""
    groups = groups_of(optimizer)
    for layer in layers:
        if layer.weight in groups:
            layer.rate = groups[layer.weight]["lr"]

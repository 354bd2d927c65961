"""What a mask update reads of the step before it: gradients, kept from before they are masked, and learning rates."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from granet.masking import all_finite, take_dense, zero_inactive
from granet.weights import SparseLayer, gradients_of


def refer_to_gradients(layers: Sequence[SparseLayer]) -> None:
    """For updates that only ask which layers have a gradient, and whether it is finite: nothing has to be copied."""
    for layer in layers:
        layer.gradient = None if layer.weight.grad is None else layer.weight.grad.detach()


@torch.no_grad()
def take_gradients(layers: Sequence[SparseLayer]) -> Tensor | None:
    """For growth: keep a dense copy of each gradient, then mask the gradient. May be called several times in a step.

    Returns whether all copies are finite, a bool tensor, or None if that was not seen on the way.
    """
    new: list[tuple[SparseLayer, Tensor]] = []
    old: list[tuple[SparseLayer, Tensor]] = []
    for layer in layers:
        grad = layer.weight.grad
        if grad is None:
            layer.gradient = None
        elif not layer.has_gradient or layer.gradient_source is None:
            new.append((layer, grad))
        else:
            old.append((layer, grad))  # called again before the same step
    if old:
        fresh = _another_pass(layers, old)
        for layer, grad in old:
            assert layer.gradient is not None
            layer.gradient = torch.where(fresh.to(grad.device), grad, layer.gradient)
            layer.gradient_source = weakref.ref(grad)
        zero_inactive((grad, layer.mask) for layer, grad in old)
    if not new:
        return None
    copies, finite = take_dense([grad for _, grad in new], [layer.mask for layer, _ in new])
    for place, (layer, grad) in enumerate(new):
        layer.keep_gradient(copies, place)
        layer.gradient_source = weakref.ref(grad)
    return None if old else finite


def _another_pass(layers: Sequence[SparseLayer], old: Sequence[tuple[SparseLayer, Tensor]]) -> Tensor:
    """Whether gradients that were kept before have been replaced since, as after a step that was given up.

    A new backward pass fills inactive places of one layer or another, while gradients that were only clipped stay
    masked. Where that cannot tell, it can only be seen that the kept ones overflowed, and, if nothing is inactive, that
    the tensors are others. Layers are judged together, since growth compares their gradients.
    """
    device = old[0][1].device
    filled = torch.stack([((grad != 0) & ~layer.mask).any().to(device) for layer, grad in old]).any()
    dense = torch.stack([layer.mask.all().to(device) for layer, _ in old]).all()
    overflowed = ~all_finite(gradients_of([layer for layer in layers if layer.has_gradient]), device)
    others = any(layer.gradient_source is None or layer.gradient_source() is not grad for layer, grad in old)
    return filled | (dense | overflowed if others else dense & overflowed)


def with_gradient(layers: Sequence[SparseLayer]) -> list[SparseLayer]:
    """The layers that have a gradient: the kept one or, if none was kept, the present ``.grad``."""
    for layer in layers:
        if not layer.has_gradient and layer.weight.grad is not None:
            layer.gradient = layer.weight.grad.detach()
    return [layer for layer in layers if layer.has_gradient]


def forget_gradients(layers: Sequence[SparseLayer]) -> None:
    for layer in layers:
        layer.gradient = layer.gradient_source = None


def read_rates(optimizer: Optimizer, layers: Sequence[SparseLayer]) -> None:
    """Each layer's ``rate`` becomes the learning rate of its weight's group."""
    for group in optimizer.param_groups:
        held = {id(parameter) for parameter in group["params"]}
        for layer in layers:
            if id(layer.weight) in held:
                layer.rate = group["lr"]

"""One optimizer step, and one look at a set of images: all that the loop does to a model.

Both leave their sums on the device. The loop reads them once per epoch, so the host never waits inside one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn import functional

from granet.training.batches import Normaliser

Step = Callable[[Tensor, Tensor], None]
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """The context in which a model runs at that precision. Without a cache of cast weights, which graphs cannot use."""
    dtype = torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=precision == "bfloat16", cache_enabled=False)


def loss_function(model: nn.Module, precision: str) -> Loss:
    """A function of one batch: its mean loss, and the sums to report, [loss, right answers]."""
    device = next(model.parameters()).device

    def loss_and_sums(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with autocast(device, precision):
            logits = model(images)
        loss = functional.cross_entropy(logits.float(), labels)
        return loss, torch.stack([loss.detach() * len(labels), _right(logits, labels)])

    return loss_and_sums


def eager_step(loss: Loss, optimizer: torch.optim.Optimizer, totals: Tensor) -> Step:
    """A function of one batch that trains on it and adds its loss and its number of right answers to `totals`."""

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        mean_loss, sums = loss(images, labels)
        mean_loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        totals.add_(sums)

    return step


@torch.no_grad()
def evaluate(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    normalise: Normaliser,
    precision: str = "float32",
    batch_size: int = 1024,
) -> Tensor:
    """The share of right answers in eval mode, as a tensor on the device; NaN for no images."""
    if not len(labels):
        return torch.full((), torch.nan, device=images.device)
    model.eval()
    right = torch.zeros((), device=images.device)
    for start in range(0, len(labels), batch_size):
        part = slice(start, start + batch_size)
        with autocast(images.device, precision):
            logits = model(normalise(images[part]))
        right += _right(logits, labels[part])
    return right / len(labels)


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(1) == labels).sum().float()

"""One optimizer step, and one look at a set of images: all that the loop does to a model.

Both leave their sums on the device. The loop reads them once per epoch, so the host never waits inside one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from granet.training.batches import Normaliser

Step = Callable[[Tensor, Tensor], None]


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, totals: Tensor) -> Step:
    """A function of one batch that trains on it and adds its loss and its number of right answers to `totals`."""

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        totals.add_(torch.stack([loss.detach() * len(labels), _right(logits, labels)]))

    return step


@torch.no_grad()
def evaluate(model: nn.Module, images: Tensor, labels: Tensor, normalise: Normaliser, batch_size: int = 1024) -> Tensor:
    """The share of right answers in eval mode, as a tensor on the device; NaN for no images."""
    if not len(labels):
        return torch.full((), torch.nan, device=images.device)
    model.eval()
    right = torch.zeros((), device=images.device)
    for start in range(0, len(labels), batch_size):
        part = slice(start, start + batch_size)
        right += _right(model(normalise(images[part])), labels[part])
    return right / len(labels)


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(1) == labels).sum().float()

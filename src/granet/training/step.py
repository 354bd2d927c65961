"""One optimizer step, and one evaluation: all that the loop does with a model.

Both leave their sums on the device. The loop reads them once per epoch, so the host never waits inside one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from granet.kernels import runs_kernels
from granet.sparsifier import Sparsifier
from granet.training.batches import Normaliser
from granet.training.bfloat16_weights import reading
from granet.training.compiled import compiled
from granet.training.device import has_gpu_to_itself
from granet.training.narrow_conv import NarrowConvolutions

Step = Callable[[Tensor, Tensor], None]
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """The context for running a model at that precision, without a cache of cast weights, which graphs cannot use."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=False)


def loss_function(
    model: nn.Module,
    precision: str,
    label_smoothing: float = 0.0,
    copies: Mapping[str, Tensor] | None = None,
    compile: bool = False,
) -> Loss:
    """A function of one batch: its mean loss, and the sums to report, [loss, right answers].

    It reads ``copies`` instead of the parameters that have these names.
    """
    on_gpu = compile and runs_kernels(next(model.parameters()).device)
    function = compiled(loss_and_sums, side_stream=on_gpu and has_gpu_to_itself()) if compile else loss_and_sums
    narrow = on_gpu and precision == "bfloat16"
    return partial(function, model, copies or {}, precision, label_smoothing, narrow)


def loss_and_sums(
    model: nn.Module,
    copies: Mapping[str, Tensor],
    precision: str,
    label_smoothing: float,
    narrow: bool,
    images: Tensor,
    labels: Tensor,
) -> tuple[Tensor, Tensor]:
    with autocast(images.device, precision), NarrowConvolutions() if narrow else nullcontext():
        logits = reading(copies, model, images) if copies else model(images)
    loss = functional.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)
    return loss, torch.stack([loss.detach() * len(labels), _right(logits, labels)])


def eager_step(
    loss: Loss, optimizer: torch.optim.Optimizer, sparsifier: Sparsifier | None, totals: Tensor, clip: float
) -> Step:
    """A function of one batch that trains on it and adds its loss and its number of right answers to `totals`.

    `clip` above 0 bounds the norm of the gradients as the optimizer sees them: masked.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def step(images: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        mean_loss, sums = loss(images, labels)
        mean_loss.backward()  # type: ignore[no-untyped-call]
        if clip:
            if sparsifier is not None:
                sparsifier.mask_gradients()
            nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        totals.add_(sums)

    return step


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], normalise: Normaliser, precision: str = "float32"
) -> Tensor:
    """The share of right answers in eval mode over batches of bytes, as a tensor on the device."""
    model.eval()
    sums = torch.zeros(2, device=next(model.parameters()).device)  # right answers, images
    for images, labels in batches:
        with autocast(sums.device, precision):
            logits = model(normalise(images))
        sums += torch.stack([_right(logits, labels), torch.full_like(sums[1], len(labels))])
    return sums[0] / sums[1]


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.detach().argmax(1) == labels).sum().float()

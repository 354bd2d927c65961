"""The whole training step as one CUDA graph: forward, backward and masked SGD, replayed with no work for the host.

Gradients are masked on their way into the optimizer's arithmetic and stay dense in ``.grad``, where a mask update finds
them. Masks, weights and momentum keep their storage, so masks change between replays and nothing is captured again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from granet.sparsifier import Sparsifier
from granet.training.step import Loss

WARM_UP = 3
"""Steps before capture: libraries choose their kernels and allocate their workspaces in these."""


class GraphStep:
    """Trains on one batch; the same arithmetic as the eager step with ``torch.optim.SGD``.

    Where a method trains something behind the weights, the optimizer's step is not ours to replay: then the graph is
    the forward and backward pass, and the optimizer is called.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.SGD,
        sparsifier: Sparsifier | None,
        totals: Tensor,
        images: Tensor,
        labels: Tensor,
        compile: bool,
        clip: float = 0.0,
    ) -> None:
        """``images`` and ``labels`` are a batch of the shape, type and layout that all batches will have."""
        self._groups = optimizer.param_groups
        self._sparsifier = sparsifier
        self._optimizer = optimizer if sparsifier is not None and sparsifier.method.hidden else None
        self._clip = clip
        self._images, self._labels = images.clone(), labels.clone()
        self._lr = torch.zeros((), device=images.device)
        self._lr_on_device = 0.0
        if self._optimizer is None:
            for parameter in _parameters(self._groups):
                if parameter.requires_grad:
                    optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
        update = torch.compile(masked_sgd, dynamic=False) if compile else masked_sgd
        in_use = sparsifier.in_use if sparsifier else {}
        masks = {id(model.get_parameter(name)): mask for name, mask in in_use.items()}

        def step() -> None:
            mean_loss, sums = loss(self._images, self._labels)
            mean_loss.backward()  # type: ignore[no-untyped-call]
            totals.add_(sums)
            if self._optimizer is not None:
                return
            scale = _clipping(self._groups, masks, clip) if clip else None
            for group in self._groups:
                _apply(update, group, optimizer, masks, self._lr, scale)

        self._graph = _capture(step, model, optimizer, totals)

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        self._images.copy_(images, non_blocking=True)
        self._labels.copy_(labels, non_blocking=True)
        lr = self._groups[0]["lr"]
        if lr != self._lr_on_device:
            self._lr_on_device = lr
            self._lr.fill_(lr)
        self._graph.replay()
        if self._optimizer is not None:
            self._step_outside()
        elif self._sparsifier is not None:
            self._sparsifier.advance()

    def _step_outside(self) -> None:
        assert self._optimizer is not None and self._sparsifier is not None
        if self._clip:
            self._sparsifier.mask_gradients()
            nn.utils.clip_grad_norm_(_parameters(self._groups), self._clip)
        self._optimizer.step()


def masked_sgd(
    weights: list[Tensor],
    gradients: list[Tensor],
    masks: list[Tensor | None],
    momenta: list[Tensor],
    lr: Tensor,
    scale: Tensor | None,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    """A step of SGD in place on ``weights`` and ``momenta``; gradients are taken as zero where a mask is False.

    The masked gradients are multiplied by ``scale`` first, if there is one.
    """
    gradients = masked(gradients, masks)
    if scale is not None:
        gradients = list(torch._foreach_mul(gradients, scale))
    gradients = list(torch._foreach_add(gradients, weights, alpha=weight_decay))
    torch._foreach_mul_(momenta, momentum)
    torch._foreach_add_(momenta, gradients)
    directions = torch._foreach_add(gradients, momenta, alpha=momentum) if nesterov else momenta
    torch._foreach_sub_(weights, torch._foreach_mul(directions, lr))


def masked(gradients: list[Tensor], masks: list[Tensor | None]) -> list[Tensor]:
    """The gradients, zero where a mask is False."""
    return [
        gradient if mask is None else torch.where(mask, gradient, 0.0)
        for gradient, mask in zip(gradients, masks, strict=True)
    ]


def clipping_scale(gradients: list[Tensor], largest: float) -> Tensor:
    """What ``torch.nn.utils.clip_grad_norm_`` multiplies gradients by to bound their norm."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return torch.clamp(largest / (norm + 1e-6), max=1.0)


def _parameters(groups: list[dict[str, Any]]) -> list[nn.Parameter]:
    return [parameter for group in groups for parameter in group["params"]]


@torch.no_grad()
def _clipping(groups: list[dict[str, Any]], masks: dict[int, Tensor], clip: float) -> Tensor:
    held = [(p.grad, masks.get(id(p))) for p in _parameters(groups) if p.grad is not None]
    return clipping_scale(masked([gradient for gradient, _ in held], [mask for _, mask in held]), clip)


@torch.no_grad()
def _apply(
    update: Callable[..., None],
    group: dict[str, Any],
    optimizer: torch.optim.SGD,
    masks: dict[int, Tensor],
    lr: Tensor,
    scale: Tensor | None,
) -> None:
    held = [parameter for parameter in group["params"] if parameter.grad is not None]
    update(
        [parameter.detach() for parameter in held],
        [parameter.grad for parameter in held],
        [masks.get(id(parameter)) for parameter in held],
        [optimizer.state[parameter]["momentum_buffer"] for parameter in held],
        lr,
        scale,
        group["momentum"],
        group["weight_decay"],
        bool(group["nesterov"]),
    )


def _capture(
    step: Callable[[], None], model: nn.Module, optimizer: torch.optim.SGD, totals: Tensor
) -> torch.cuda.CUDAGraph:
    """Warm up, put everything back as it was, and capture.

    The first forward pass happens on the side stream: a parameter's gradient node belongs to the stream it was made on.
    """
    momenta = [state["momentum_buffer"] for state in optimizer.state.values() if "momentum_buffer" in state]
    tensors = [*(tensor.detach() for tensor in model.state_dict().values()), *momenta, totals]
    before = [tensor.clone() for tensor in tensors]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            optimizer.zero_grad(set_to_none=True)
            step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may train meanwhile
        step()
    for tensor, value in zip(tensors, before, strict=True):
        tensor.copy_(value)
    return graph

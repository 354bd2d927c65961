"""The whole training step as a CUDA graph: forward, backward and masked SGD, replayed with no work for the host.

Gradients are masked only inside the optimizer's arithmetic; ``.grad`` stays dense for a mask update to read. Masks,
weights and momentum keep their storage, so masks change between replays and nothing is captured again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from granet.hidden import as_it_is
from granet.sparsifier import Sparsifier, steps_of
from granet.training.bfloat16_weights import RoundedWeights
from granet.training.compiled import compiled
from granet.training.device import has_gpu_to_itself, kernels_tried
from granet.training.step import Loss

FIRST = -1
"""The priority of a step's stream, above that of work beside it."""

WARM_UP = 3
"""Steps before capture, in which libraries choose their kernels and allocate workspaces."""


class GraphStep:
    """Trains on one batch; the same arithmetic as the eager step with ``torch.optim.SGD``.

    One graph, or two for a method that takes no optimizer step on update steps: the passes, and SGD.
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
        rounded: RoundedWeights | None = None,
    ) -> None:
        """``images`` and ``labels`` are a batch of the shape, type and layout that all batches will have.

        ``rounded`` are the copies of the model's weights that ``loss`` reads, if it does not read the weights.
        """
        self._groups = optimizer.param_groups
        self._steps = steps_of(sparsifier) if sparsifier else None
        self._rounded = rounded
        self._images, self._labels = images.clone(), labels.clone()
        self._lr = torch.zeros((), device=images.device)
        self._lr_on_device = 0.0
        for parameter in _parameters(self._groups):
            if parameter.requires_grad:
                optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
        update = compiled(masked_sgd) if compile else masked_sgd
        self._hidden = hidden = sparsifier.hidden if sparsifier else None
        in_use = sparsifier.in_use if sparsifier and not hidden else {}  # where weights are hidden, all are trained
        masks = {id(model.get_parameter(name)): mask for name, mask in in_use.items()}

        def passes() -> None:
            mean_loss, sums = loss(self._images, self._labels)
            mean_loss.backward()  # type: ignore[no-untyped-call]
            totals.add_(sums)

        def sgd() -> None:
            held = [_held(group, optimizer, masks, rounded) for group in self._groups]
            scale = _clipping(held, clip) if clip else None
            for group, several in zip(self._groups, held, strict=True):
                _apply(update, group, several, self._lr, scale)

        def hidden_sgd() -> None:
            assert hidden is not None
            hidden.pull_back()
            if clip:
                nn.utils.clip_grad_norm_(_parameters(self._groups), clip)
            hidden.enter()
            for group in self._groups:
                _apply(update, group, _held(group, optimizer, masks, None), self._lr, None)
            hidden.leave()

        def forget_gradients() -> None:
            optimizer.zero_grad(set_to_none=True)
            if rounded is not None:
                rounded.forget_gradients()

        step = hidden_sgd if hidden else sgd
        momenta = [state["momentum_buffer"] for state in optimizer.state.values() if "momentum_buffer" in state]
        behind = [tensor for kind in hidden.tensors().values() for tensor in kind.values()] if hidden else []
        own = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
        state = [*own, *momenta, *behind, totals]
        if hidden and compile:
            hidden.fuse = compiled
        self._sgd: torch.cuda.CUDAGraph | None = None
        if sparsifier is None or sparsifier.method.step_on_update:
            self._graph = _capture([passes, step], forget_gradients, state)
        else:
            self._graph = _capture([passes], forget_gradients, state)
            self._sgd = _capture([step], lambda: None, state)
        if rounded is not None:
            rounded.refresh()
            if sparsifier:
                sparsifier.on_change(lambda change: rounded.refresh())
        if hidden:
            hidden.captured, hidden.fuse = True, as_it_is  # nothing is compiled while others are captured
            hidden.show()

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        self._images.copy_(images, non_blocking=True)
        self._labels.copy_(labels, non_blocking=True)
        lr = self._groups[0]["lr"]
        if lr != self._lr_on_device:
            self._lr_on_device = lr
            self._lr.fill_(lr)
        steps, rounded = self._steps, self._rounded
        if steps is not None:
            if steps.hidden is not self._hidden:
                raise ValueError("sparsifier: must not be finished, the captured step trains what it had hidden")
            steps.prepare()
        self._graph.replay()
        if self._sgd is not None and not (steps and steps.updates.is_next):
            self._sgd.replay()
        if steps is not None:
            with rounded.gradients_shown() if rounded and steps.updates.reads_next else nullcontext():
                steps.taken()


def masked_sgd(
    weights: list[Tensor],
    gradients: list[Tensor],
    masks: list[Tensor | None],
    momenta: list[Tensor],
    copies: list[Tensor],
    lr: Tensor,
    scale: Tensor | None,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    """A step of SGD in place on ``weights`` and ``momenta``; gradients are taken as zero where a mask is False.

    The masked gradients are multiplied by ``scale`` first, if there is one. ``copies`` of the weights, if there are
    any, are updated.
    """
    gradients = masked(gradients, masks)
    if scale is not None:
        gradients = list(torch._foreach_mul(gradients, scale))
    gradients = list(torch._foreach_add(gradients, weights, alpha=weight_decay))
    torch._foreach_mul_(momenta, momentum)
    torch._foreach_add_(momenta, gradients)
    directions = torch._foreach_add(gradients, momenta, alpha=momentum) if nesterov else momenta
    torch._foreach_sub_(weights, torch._foreach_mul(directions, lr))
    if copies:
        torch._foreach_copy_(copies, weights)


def masked(gradients: list[Tensor], masks: list[Tensor | None]) -> list[Tensor]:
    """The gradients in float32, zero where a mask is False."""
    return [
        gradient.float() if mask is None else torch.where(mask, gradient.float(), 0.0)
        for gradient, mask in zip(gradients, masks, strict=True)
    ]


def clipping_scale(gradients: list[Tensor], largest: float) -> Tensor:
    """What ``torch.nn.utils.clip_grad_norm_`` multiplies gradients by to bound their norm."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return torch.clamp(largest / (norm + 1e-6), max=1.0)


def _parameters(groups: list[dict[str, Any]]) -> list[nn.Parameter]:
    return [parameter for group in groups for parameter in group["params"]]


class _Held(NamedTuple):
    """A parameter that has a gradient, and all that its step reads or writes."""

    weight: Tensor
    gradient: Tensor
    mask: Tensor | None
    momentum: Tensor
    copy: Tensor | None


def _held(
    group: dict[str, Any], optimizer: torch.optim.SGD, masks: dict[int, Tensor], rounded: RoundedWeights | None
) -> list[_Held]:
    held = []
    for parameter in group["params"]:
        copy = rounded.copy_of(parameter) if rounded is not None else None
        gradient = parameter.grad if copy is None else copy.grad
        if gradient is not None:
            momentum = optimizer.state[parameter]["momentum_buffer"]
            copy = None if copy is None else copy.detach()
            held.append(_Held(parameter.detach(), gradient, masks.get(id(parameter)), momentum, copy))
    return held


@torch.no_grad()
def _clipping(held: list[list[_Held]], clip: float) -> Tensor:
    every = [one for several in held for one in several]
    return clipping_scale(masked([one.gradient for one in every], [one.mask for one in every]), clip)


@torch.no_grad()
def _apply(
    update: Callable[..., None], group: dict[str, Any], held: list[_Held], lr: Tensor, scale: Tensor | None
) -> None:
    """One call for the weights with a copy, one for the others: a list without None compiles into one kernel."""
    for copied in (True, False):
        if some := [one for one in held if (one.copy is not None) == copied]:
            update(
                [one.weight for one in some],
                [one.gradient for one in some],
                [one.mask for one in some],
                [one.momentum for one in some],
                [one.copy for one in some if one.copy is not None],
                lr,
                scale,
                group["momentum"],
                group["weight_decay"],
                bool(group["nesterov"]),
            )


def _capture(
    parts: list[Callable[[], None]], forget_gradients: Callable[[], None], state: list[Tensor]
) -> torch.cuda.CUDAGraph:
    """Warm up, capture the parts as one, and put ``state`` and the device's random numbers back as they were.

    All on the stream that the run has to itself, or on a new one beside the default stream, which cannot be captured. A
    stream that another thread works on must not be captured, and torch reuses streams after the 32nd. The first forward
    pass happens there too: a parameter's gradient node belongs to the stream it was made on.
    """
    before = [tensor.clone() for tensor in state]
    current = torch.cuda.current_stream()
    own = torch.cuda.Stream(priority=FIRST) if has_gpu_to_itself() else current  # type: ignore[no-untyped-call]
    own.wait_stream(current)
    graph = torch.cuda.CUDAGraph()
    with kernels_tried():
        random = torch.cuda.get_rng_state()
        with torch.cuda.stream(own):
            for _ in range(WARM_UP):
                forget_gradients()
                for part in parts:
                    part()
            forget_gradients()
        current.wait_stream(own)
        with torch.cuda.graph(graph, stream=own, capture_error_mode="thread_local"):
            for part in parts:
                part()
        torch.cuda.set_rng_state(random)
    for tensor, value in zip(state, before, strict=True):
        tensor.copy_(value)
    return graph

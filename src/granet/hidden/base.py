"""The contract between the sparsifier and what a method keeps behind the weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from granet.clock import Clock
from granet.weights import SparseLayer


class Hidden(ABC):
    """What is trained behind the weights of some layers.

    Between steps the model's parameters are what the model shows, so evaluation, checkpoints and averages need not know
    of this. During an optimizer step the parameters hold what is trained: :meth:`enter` puts it there, :meth:`leave`
    takes it back and shows the outcome. Parameters keep their storage throughout, and neither method needs the host, so
    that a step can be captured and replayed; :meth:`prepare` does what needs the host before the step.
    """

    shows_zeros = True
    """Whether the model's weights are zero where masks are False, in training as well as after :meth:`finish`."""
    captured = False
    """Whether steps are replayed, including :meth:`pull_back`, :meth:`enter` and :meth:`leave`."""

    def __init__(self, layers: Sequence[SparseLayer]) -> None:
        self.layers = list(layers)
        self.fuse: Callable[[Callable[..., Any]], Callable[..., Any]] = as_it_is
        """Applied to functions that go over all weights in a step: a trainer may compile them."""
        self._inside = False

    def prepare(self, clock: Clock) -> None:  # noqa: B027 (nothing, for most)
        """Before a step: whatever needs the host. The clock shows the steps taken so far."""

    @abstractmethod
    def pull_back(self) -> None:
        """Turn the gradients of what is shown into those of what is trained. Idempotent."""

    def enter(self) -> None:
        """Before the optimizer's arithmetic: let the parameters hold what is trained."""
        self._inside = True
        self._enter()

    def leave(self) -> bool:
        """After the optimizer's arithmetic: show the outcome. Returns False if there was no step to leave."""
        if not self._inside:
            return self.captured  # if so, a replay has entered and left
        self._inside = False
        self._leave()
        return True

    @abstractmethod
    def _enter(self) -> None: ...

    @abstractmethod
    def _leave(self) -> None: ...

    @abstractmethod
    def show(self) -> None:
        """Bring weights and masks in line with what is trained."""

    @abstractmethod
    def finish(self) -> None:
        """Let go of everything but the weights and their masks."""

    # State.

    @abstractmethod
    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What must be saved: for each kind, layer name to tensor."""

    def state(self) -> dict[str, dict[str, Tensor]]:
        """A copy of :meth:`tensors`."""
        return {
            kind: {name: tensor.detach().clone() for name, tensor in tensors.items()}
            for kind, tensors in self.tensors().items()
        }

    def check(self, state: Any) -> None:
        """ValueError unless ``state`` is what :meth:`state` returns for these layers."""
        for kind, tensors in self.tensors().items():
            for name, tensor in tensors.items():
                try:
                    saved = state[kind][name]
                except (KeyError, TypeError, IndexError):
                    saved = None
                if not isinstance(saved, Tensor) or saved.shape != tensor.shape:
                    raise ValueError(
                        f"state['hidden'][{kind!r}][{name!r}]: must be a tensor of shape {tuple(tensor.shape)}"
                    )

    @torch.no_grad()
    def load(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Continue from a state that :meth:`check` has passed."""
        self._inside = False
        for kind, tensors in self.tensors().items():
            for name, tensor in tensors.items():
                tensor.copy_(state[kind][name])


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function

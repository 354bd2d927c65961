"""What an observer is, and what it may look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from granet.model_inputs import arguments
from granet.probe.modes import in_mode
from granet.sparsifier import Sparsifier
from granet.tensors.packing import pack_bits, unpack_bits
from granet.weights import SparseLayer


@dataclass(frozen=True, eq=False)
class Watched:
    """A model in training. ``images`` are inputs that stay the same, for observers that run the model on a batch."""

    model: nn.Module
    sparsifier: Sparsifier | None = None
    images: Any = None

    @property
    def layers(self) -> list[SparseLayer]:
        """The sparse weights; none in a dense model."""
        return [] if self.sparsifier is None else list(self.sparsifier.layers.values())

    def run(self) -> Any:
        """What the model outputs for the images, in evaluation mode and without gradients."""
        positional, named = arguments(self.images)
        with torch.no_grad(), in_mode(self.model, training=False):
            return self.model(*positional, **named)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


class Observer(ABC):
    """Watches a network change, and gives a few figures for each epoch. It changes nothing in the training.

    Sums stay on the device until the epoch ends, so a step never makes the host wait. Observers use no module hooks,
    since these do not run in a step that is replayed from a CUDA graph: masks and ``.grad`` are read between steps, and
    activations at the end of an epoch.
    """

    cost: ClassVar[str]
    """What it takes, in words."""
    needs_masks: ClassVar[bool] = False
    """It watches masks, so it has nothing to say about a dense model."""
    needs_images: ClassVar[bool] = False
    """It runs the model on a batch of images."""
    needs_activations: ClassVar[bool] = False
    """It looks at activations in that run, so it has nothing to say about a model without any."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._layers = watched.layers

    def after_step(self, updated: bool) -> None:  # noqa: B027 (not every observer looks at steps)
        """An optimizer step is done, gradients are still there; ``updated`` if the masks were updated after it."""

    @abstractmethod
    def epoch(self) -> dict[str, float]:
        """The available figures for the epoch just done; sums over an epoch are reset."""

    def state(self) -> dict[str, Any]:
        """What it needs to continue: tensors and plain values."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027 (not every observer has a state)
        """Continue from that state."""


def pack_all(masks: list[Tensor]) -> list[Tensor]:
    """Masks as bits, for a state."""
    return [pack_bits(mask) for mask in masks]


def unpack_all(packed: list[Tensor], masks: list[Tensor]) -> None:
    """The inverse of :func:`pack_all`, into existing masks."""
    for bits, mask in zip(packed, masks, strict=True):
        mask.copy_(unpack_bits(bits, mask.shape))

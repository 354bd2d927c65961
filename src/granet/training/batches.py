"""Training batches from images that already live on the device: shuffled, cropped, mirrored and normalised there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from granet.data.augment import PadMode, affine, apply_moves, draw_moves, normalise

Normaliser = Callable[[Tensor], Tensor]

BATCHES_AT_ONCE = 64
"""Batches prepared together: on a GPU, preparing one takes as long as preparing many."""


def normaliser(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device, dtype: torch.dtype = torch.float32
) -> Normaliser:
    """A function from bytes to floats with mean 0 and deviation 1 over the set that `mean` and `std` were measured on.

    On a GPU the images come out channels-last, the layout its convolutions are fastest in.
    """
    scale, shift = affine(mean, std, device)
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    return lambda images: normalise(images, scale, shift, dtype=dtype, memory_format=layout)


class Batches:
    """Shuffled, augmented and normalised training batches; each call of `epoch` draws the next epoch.

    `crop` shifts each image by up to that many pixels, and `padding` says what fills the gap; `flip` mirrors half of
    them. The incomplete batch at the end is left out, so all batches have one shape. The random choices of an epoch are
    drawn on the CPU from one seeded generator and sent over once: every device sees the same batches, and no step
    waits.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        batch_size: int,
        normalise: Normaliser,
        crop: int = 0,
        padding: PadMode = "reflect",
        flip: bool = False,
        seed: int = 0,
    ) -> None:
        if crop >= min(images.shape[2:]):
            raise ValueError(f"crop={crop!r}: must be below the side of the images, {min(images.shape[2:])}")
        self._images, self._labels = images, labels
        self._batch_size = batch_size
        self._normalise = normalise
        self._crop, self._padding, self._flip = crop, padding, flip
        self._generator = torch.Generator().manual_seed(seed)

    @property
    def random_state(self) -> Tensor:
        """The state of the random choices, between two epochs."""
        return self._generator.get_state()

    @random_state.setter
    def random_state(self, state: Tensor) -> None:
        self._generator.set_state(state.cpu())

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._labels) // self._batch_size

    def epoch(self, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over the images in a new order: pairs of float images (N, C, H, W) and labels (N,).

        The first `skip` batches are drawn like the others and left out.
        """
        count, device = len(self._labels), self._images.device
        order = torch.randperm(count, generator=self._generator).to(device)
        moves = draw_moves(count, pad=self._crop, flip=0.5 * self._flip, generator=self._generator).to(device)
        used = len(self) * self._batch_size
        for start in range(skip * self._batch_size, used, BATCHES_AT_ONCE * self._batch_size):
            part = slice(start, min(start + BATCHES_AT_ONCE * self._batch_size, used))
            images, labels = self._images[order[part]], self._labels[order[part]]
            if self._crop or self._flip:
                images = apply_moves(images, moves[part], pad=self._crop, mode=self._padding)
            images = self._normalise(images)
            yield from zip(torch.split(images, self._batch_size), torch.split(labels, self._batch_size), strict=True)

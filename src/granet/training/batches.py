"""Training batches from images that already live on the device: shuffled, cropped, mirrored and normalised there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from granet.data.augment import affine, apply_moves, draw_moves, normalise

Normaliser = Callable[[Tensor], Tensor]


def normaliser(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> Normaliser:
    """A function from bytes to floats that have mean 0 and deviation 1 over the set the two were measured on."""
    scale, shift = affine(mean, std, device)
    return lambda images: normalise(images, scale, shift)


class Batches:
    """Shuffled, augmented and normalised training batches; each call of `epoch` draws the next epoch.

    `crop` shifts each image by up to so many pixels, with reflected pixels moving in; `flip` mirrors half of them. The
    incomplete batch at the end is left out, so all batches have one shape. The random choices of an epoch are drawn on
    the CPU from one seeded generator and sent over once: every device sees the same batches, and no step waits.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        batch_size: int,
        normalise: Normaliser,
        crop: int = 0,
        flip: bool = False,
        seed: int = 0,
    ) -> None:
        if crop >= min(images.shape[2:]):
            raise ValueError(f"crop={crop!r}: must be below the side of the images, {min(images.shape[2:])}")
        self._images, self._labels = images, labels
        self._batch_size = batch_size
        self._normalise = normalise
        self._crop, self._flip = crop, flip
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._labels) // self._batch_size

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over the images in a new order: pairs of float images (N, C, H, W) and labels (N,)."""
        count, device = len(self._labels), self._images.device
        order = torch.randperm(count, generator=self._generator).to(device)
        moves = draw_moves(count, pad=self._crop, flip=0.5 * self._flip, generator=self._generator).to(device)
        for batch in range(len(self)):
            part = slice(batch * self._batch_size, (batch + 1) * self._batch_size)
            images = self._images[order[part]]
            if self._crop or self._flip:
                images = apply_moves(images, moves[part], pad=self._crop, mode="reflect")
            yield self._normalise(images), self._labels[order[part]]

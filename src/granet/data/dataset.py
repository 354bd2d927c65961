"""What every reader of images returns: plain tensors, already split."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A labelled image set, small enough to live on the training device as bytes.

    Images are `uint8` in NCHW order and labels `int64`, so that a whole set moves to the device once and is
    normalised there. `mean` and `std` are per channel, of the *training* images scaled to [0, 1].

    A set without a validation part has `val_images` and `val_labels` of length 0; `test` is never used to choose
    anything, and never empty: without it there is no accuracy to report. Images of all parts have the same shape.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    val_images: Tensor
    val_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        channels = len(self.mean)
        if len(self.std) != channels:
            raise ValueError(f"std={self.std}: must have as many channels as mean, {channels}")
        for part in ("train", "val", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != channels:
                raise ValueError(
                    f"{part}_images={images.dtype} {tuple(images.shape)}: must be uint8 of shape (N, {channels}, H, W)"
                )
            if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
                raise ValueError(
                    f"{part}_labels={labels.dtype} {tuple(labels.shape)}: must be int64 of shape ({images.shape[0]},)"
                )
            if images.shape[1:] != self.train_images.shape[1:]:
                shape, others = ("x".join(map(str, sizes)) for sizes in (images.shape[1:], self.shape))
                raise ValueError(f"{self.name}: {part}_images are {shape}, train_images {others}; they must agree")
        if not len(self.test_labels):
            raise ValueError(f"{self.name}: test_images is empty; there must be images to report an accuracy on")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and (population) standard deviation per channel of `uint8` NCHW images scaled to [0, 1].

    Exact integer sums of the 256 byte values, so the result does not depend on the order of the images.

    >>> channel_statistics(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
    ((0.5,), (0.5,))
    """
    values = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in range(images.shape[1]):
        weights = torch.bincount(images[:, channel].flatten().long(), minlength=256).double()
        weights /= weights.sum()
        mean = (weights * values).sum()
        means.append(mean.item())
        deviations.append((weights * (values - mean) ** 2).sum().sqrt().item())
    return tuple(means), tuple(deviations)

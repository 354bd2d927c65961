"""From the images of a published set to an `ImageSet` with an explicit validation part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from granet.data.dataset import ImageSet
from granet.plain_numbers import plain

Part = tuple[Tensor, Tensor]


def join(parts: Iterable[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> Part:
    """Images and labels of several files, one after the other, as the `uint8` and `int64` an `ImageSet` holds."""
    images, labels = zip(*parts, strict=True)
    return torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels).astype(np.int64))


def split_off(
    name: str, train: Part, test: Part, val: int, *, classes: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> ImageSet:
    """The last `val` training images, in file order, become the validation part.

    File order and no shuffle, because the published 45,000-image split of CIFAR-10 is the first 45,000 of the files.
    """
    images, labels = train
    total = len(images)
    val = plain(val)
    if type(val) is not int or val < 0:
        allowed = f"a whole number from 0 to {total - 1}"
        raise ValueError(f"val={val!r}: must be {allowed}, {name} has {total} training images")
    if val >= total:  # mostly a default that nobody typed, so it is the files that are spoken of
        raise ValueError(f"{name}: its files hold {total:,} training images, too few to keep {val:,} for validation")
    kept = total - val
    return ImageSet(
        name=name,
        train_images=images[:kept],
        train_labels=labels[:kept],
        val_images=images[kept:],
        val_labels=labels[kept:],
        test_images=test[0],
        test_labels=test[1],
        classes=classes,
        mean=mean,
        std=std,
    )

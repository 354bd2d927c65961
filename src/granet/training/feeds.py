"""Where a run's images come from: whole on the device, or streamed from files by worker processes."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from granet.data.dataset import ImageSet
from granet.data.imagefolder import ImageFolder, ImageFolders
from granet.training.batches import Batches, Normaliser, normaliser
from granet.training.recipe import Recipe

Data = ImageSet | ImageFolders
Split = Iterable[tuple[Tensor, Tensor]]
"""Batches of bytes and labels on the device; can be iterated any number of times."""

EVALUATED_AT_ONCE = 1024
"""Images in a batch of evaluation, where they live on the device."""


class TrainingBatches(Protocol):
    """Batches of floats and labels on the device, another order each epoch."""

    random_state: Tensor
    """The state of the random choices before an epoch."""

    def __len__(self) -> int:
        """Batches in an epoch."""

    def epoch(self, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The next epoch, without its first ``skip`` batches."""


@dataclass(frozen=True, eq=False)
class Feed:
    """All that a run reads. ``val`` is None for a set without a validation part."""

    train: TrainingBatches
    val: Split | None
    test: Split
    normalise: Normaliser
    shape: tuple[int, int, int]


def make_feed(data: Data, recipe: Recipe, device: torch.device, workers: int | None = None) -> Feed:
    """The feed of a recipe; ``workers`` read files at the same time (by default as many as there are cores).

    Image folders crop and mirror in their own way; a recipe that asks for another is refused.
    """
    check_workers(workers)
    normalise = normaliser(data.mean, data.std, device, getattr(torch, recipe.precision))
    if isinstance(data, ImageFolders):
        for field in ("crop", "flip"):
            if value := getattr(recipe, field):
                own = "the images of a folder have their own augmentation, random resized crops and mirroring"
                raise ValueError(f"{field}={value!r}: has no effect on {data.name}, {own}; leave it out")
        workers = (os.cpu_count() or 1) if workers is None else workers
        train = FolderBatches(data.train, recipe, normalise, device, workers)
        return Feed(train, None, FolderSplit(data.val, recipe.batch_size, device, workers), normalise, data.shape)
    resident = Batches(
        data.train_images.to(device),
        data.train_labels.to(device),
        batch_size=recipe.batch_size,
        normalise=normalise,
        crop=recipe.crop,
        padding=recipe.padding,
        flip=recipe.flip,
        seed=recipe.seed,
    )
    val = resident_split(data.val_images, data.val_labels, device) if len(data.val_labels) else None
    return Feed(resident, val, resident_split(data.test_images, data.test_labels, device), normalise, data.shape)


def check_workers(workers: int | None) -> None:
    """ValueError for a negative number, even for a set that needs no worker processes."""
    if workers is not None and workers < 0:
        raise ValueError(f"workers={workers!r}: must be 0 or more processes")


def resident_split(images: Tensor, labels: Tensor, device: torch.device) -> Split:
    """A part of a small set, moved to the device once."""
    parts = (torch.split(whole.to(device), EVALUATED_AT_ONCE) for whole in (images, labels))
    return list(zip(*parts, strict=True))


class FolderBatches:
    """Training batches from image files; the order and the crops of an epoch follow from its number and the seed."""

    def __init__(
        self, folder: ImageFolder, recipe: Recipe, normalise: Normaliser, device: torch.device, workers: int
    ) -> None:
        self._folder = copy.copy(folder)
        self._folder.seed = recipe.seed
        self._batch_size = recipe.batch_size
        self._normalise, self._device, self._workers = normalise, device, workers
        self.random_state = torch.tensor(0)

    def __len__(self) -> int:
        return len(self._folder) // self._batch_size

    def epoch(self, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        keys, size = self._folder.keys(int(self.random_state)), self._batch_size
        self.random_state = self.random_state + 1
        # only whole batches; the files of skipped ones are not read
        batches = [keys[number * size : (number + 1) * size] for number in range(skip, len(self))]
        for images, labels in _read(_loader(self._folder, self._device, self._workers, batch_sampler=batches)):
            yield (
                self._normalise(images.to(self._device, non_blocking=True)),
                labels.to(self._device, non_blocking=True),
            )


@dataclass(frozen=True)
class FolderSplit:
    """Evaluation batches from image files."""

    folder: ImageFolder
    batch_size: int
    device: torch.device
    workers: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in _read(_loader(self.folder, self.device, self.workers, batch_size=self.batch_size)):
            yield images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)


def _loader(folder: ImageFolder, device: torch.device, workers: int, **batching: Any) -> DataLoader[Any]:
    own = torch.Generator()  # otherwise the loader draws an unused seed from the global one
    return DataLoader(folder, num_workers=workers, pin_memory=device.type == "cuda", generator=own, **batching)


def _read(loader: DataLoader[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """The loader's batches. A file that cannot be read is named in one line, whichever process found out.

    What a worker process raises reaches this one as torch's text around a printed traceback, whose last line is the
    error's type and words.
    """
    try:
        yield from loader
    except ValueError as error:
        words = str(error).strip()
        if not words.startswith("Caught "):
            raise
        # Torch's frames hold its iterator: left to the garbage collector, that waits 5 s for each worker to end.
        raise ValueError(words.splitlines()[-1].partition(": ")[2]) from error.with_traceback(None)

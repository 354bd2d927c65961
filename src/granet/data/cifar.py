"""CIFAR-10 and CIFAR-100 from any of their published forms: python or binary batches, unpacked or in their archive."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from granet.data.dataset import ImageSet
from granet.data.files import Layout, data_folder, find_layout
from granet.data.published import FILES
from granet.data.splits import join, split_off
from granet.data.unpickle import load_batch

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

SIDE = 32
PIXELS = 3 * SIDE * SIDE


@dataclass(frozen=True)
class CifarSet:
    """What sets CIFAR-10 and CIFAR-100 apart: file names, label fields, statistics, and how the paper splits it.

    `mean` and `std` are those of the code released with the paper, not recomputed; CIFAR-10's std is the widespread
    mean of per-image deviations, about 0.8 of the deviation over all pixels. `val` is the default size of the
    validation part: without one, as the paper trains on CIFAR-100, there is nothing to choose an epoch on.
    """

    name: str
    classes: int
    python: Layout
    binary: Layout
    label_key: bytes
    label_bytes: int  # leading bytes of a binary record; the last of them is the label
    val: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


CIFAR10 = CifarSet(
    name="cifar10",
    classes=10,
    python=Layout(
        ("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10"),
        (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"),
        "cifar-10-python.tar.gz",
    ),
    binary=Layout(
        ("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10"),
        (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"),
        "cifar-10-binary.tar.gz",
    ),
    label_key=b"labels",
    label_bytes=1,
    val=5_000,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
)
CIFAR100 = CifarSet(
    name="cifar100",
    classes=100,
    python=Layout(
        ("cifar-100-python", "cifar100/cifar-100-python", "cifar100"), ("train", "test"), "cifar-100-python.tar.gz"
    ),
    binary=Layout(
        ("cifar-100-binary", "cifar100/cifar-100-binary", "cifar100"),
        ("train.bin", "test.bin"),
        "cifar-100-binary.tar.gz",
    ),
    label_key=b"fine_labels",
    label_bytes=2,
    val=0,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


def parse_batch(path: str, data: bytes, spec: CifarSet) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of one python or binary batch; `path` is for messages."""
    try:
        if path.endswith(".bin"):
            images, labels = _parse_binary(data, spec)
        else:
            batch = load_batch(data, FILES[spec.name][PurePath(path).name])
            images, labels = batch[b"data"], np.asarray(batch[spec.label_key], np.int64)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    wrong = labels[(labels < 0) | (labels >= spec.classes)]
    if len(wrong):
        raise ValueError(f"{path}: label {wrong[0]}, {spec.name} has labels 0 to {spec.classes - 1}")
    return images.reshape(-1, 3, SIDE, SIDE), labels


def load_cifar(spec: CifarSet, data_dir: str | os.PathLike[str] | None, val: int | None) -> ImageSet:
    """The set, of CIFAR-100 with its 100 fine labels; the last `val` training images, or the default, validate."""
    advice = (
        f"Get {spec.python.archive} (or {spec.binary.archive}) from Alex Krizhevsky's CIFAR page, "
        "https://www.cs.toronto.edu/~kriz/cifar.html, and put it, packed or unpacked,"
    )
    layout, place = find_layout(spec.name, data_folder(data_dir), (spec.python, spec.binary), advice)
    batches = [parse_batch(f"{place}/{file}", data, spec) for file, data in layout.read(place).items()]
    return split_off(
        spec.name,
        join(batches[:-1]),
        join(batches[-1:]),
        spec.val if val is None else val,
        classes=spec.classes,
        mean=spec.mean,
        std=spec.std,
    )


def _parse_binary(data: bytes, spec: CifarSet) -> tuple[Bytes, Bytes]:
    record = spec.label_bytes + PIXELS
    if not data or len(data) % record:
        raise ValueError(f"{len(data):,} bytes, which is not a whole number of records of {record} bytes: truncated?")
    rows = np.frombuffer(data, np.uint8).reshape(-1, record)
    return rows[:, spec.label_bytes :], rows[:, spec.label_bytes - 1].astype(np.int64)

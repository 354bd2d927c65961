"""MNIST and Fashion-MNIST from their IDX files, packed (.gz) or not."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from granet.data.dataset import ImageSet
from granet.data.files import Layout, data_folder, find_layout
from granet.data.splits import join, split_off

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
LAYOUTS = {
    "mnist": Layout(("mnist", "MNIST/raw", "MNIST"), FILES),
    "fashion-mnist": Layout(("fashion-mnist", "FashionMNIST/raw", "FashionMNIST"), FILES),
}


def mnist(data_dir: str | os.PathLike[str] | None = None, val: int | None = None) -> ImageSet:
    """MNIST, 1x28x28. By default the last 5,000 of the 60,000 training images are for validation."""
    page = "Yann LeCun's MNIST page, http://yann.lecun.com/exdb/mnist/"
    return _load("mnist", page, data_dir, val, mean=0.1307, std=0.3081)


def fashion_mnist(data_dir: str | os.PathLike[str] | None = None, val: int | None = None) -> ImageSet:
    """Fashion-MNIST, 1x28x28. By default the last 5,000 of the 60,000 training images are for validation."""
    page = "Zalando Research's repository, https://github.com/zalandoresearch/fashion-mnist"
    return _load("fashion-mnist", page, data_dir, val, mean=0.2860, std=0.3530)


def parse_idx(path: str, data: bytes, dimensions: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The array in an IDX file of unsigned bytes.

    Big-endian: two zero bytes, the type (8 = unsigned byte), the number of dimensions, each size as 32 bits, then the
    bytes in row-major order. `path` is for messages.
    """
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes((0, 0, 8, dimensions)):
        raise ValueError(f"{path}: not an IDX file of unsigned bytes with {dimensions} dimension(s)")
    shape = tuple(int.from_bytes(data[start : start + 4], "big") for start in range(4, header, 4))
    if math.prod(shape) != len(data) - header or not shape[0]:
        raise ValueError(f"{path}: shape {shape} asks for {math.prod(shape):,} bytes, there are {len(data) - header:,}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _load(
    name: str, page: str, data_dir: str | os.PathLike[str] | None, val: int | None, *, mean: float, std: float
) -> ImageSet:
    advice = f"Get the four files {FILES[0]}.gz etc. from {page}, and put them, packed or unpacked, in {name}/"
    layout, place = find_layout(name, data_folder(data_dir), (LAYOUTS[name],), advice)
    arrays = {
        file: parse_idx(f"{place}/{file}", data, 3 if "images" in file else 1)
        for file, data in layout.read(place).items()
    }
    parts = []
    for which in ("train", "t10k"):
        images, labels = arrays[f"{which}-images-idx3-ubyte"], arrays[f"{which}-labels-idx1-ubyte"]
        if len(images) != len(labels):
            raise ValueError(f"{place}: {which} has {len(images)} images and {len(labels)} labels")
        if labels.max() > 9:
            raise ValueError(f"{place}/{which}-labels-idx1-ubyte: label {labels.max()}, {name} has labels 0 to 9")
        parts.append(join([(images[:, None], labels)]))
    train, test = parts
    return split_off(name, train, test, 5_000 if val is None else val, classes=10, mean=(mean,), std=(std,))

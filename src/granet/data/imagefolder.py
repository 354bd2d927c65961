"""Large image sets, one image file each, in one folder per class; read by Pillow in worker processes.

Every random choice is a function of (seed, epoch, index of the image) alone: the pixels of an epoch do not depend on
the number of worker processes, on what ran before, or on whether the run was resumed.

    data = image_folders()
    for epoch in range(100):
        loader = DataLoader(data.train, batch_size=128, sampler=data.train.keys(epoch), num_workers=16)
        for images, labels in loader: ...            # uint8 NCHW; normalise on the device, see granet.data.augment
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from granet.data.files import MissingDataError, data_folder
from granet.data.transforms import RandomResizedCrop, ResizeCentreCrop

if TYPE_CHECKING:
    from PIL import Image

EXTENSIONS = (".jpeg", ".jpg", ".png", ".ppm", ".bmp", ".webp")
SIXTEEN_BIT_AS_INTEGERS = ("PNG", "PPM")
"""Formats without gray wider than 16 bits, which Pillow (for PNG: its older versions) opens in the 32-bit mode I."""
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
NAME = "imagenet"

Transform = Callable[["Image.Image", random.Random], "Image.Image"]
Key = int | tuple[int, int]


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """The images under `root/CLASS/...` as `uint8` CHW tensors of equal size, with the class's number in name order.

    An item is asked for by its index, or by (epoch, index) as in `keys`; the epoch only seeds the transform. It travels
    with the request because worker processes hold copies of this object that no later call could update.
    """

    def __init__(self, root: str | os.PathLike[str], transform: Transform, *, seed: int = 0) -> None:
        _pillow()
        self.root, self.transform, self.seed = Path(root), transform, seed
        self.classes, self.files, self.labels = _scan(self.root)

    def __len__(self) -> int:
        return len(self.files)

    def keys(self, epoch: int) -> list[tuple[int, int]]:
        """All images, in the order of that epoch."""
        return [(epoch, index) for index in epoch_permutation(len(self), seed=self.seed, epoch=epoch).tolist()]

    def __getitem__(self, key: Key) -> tuple[Tensor, int]:
        epoch, index = key if isinstance(key, tuple) else (0, key)
        if not -len(self) <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        index %= len(self)
        choices = random.Random(f"{self.seed} {epoch} {index}")  # text seeds are hashed, the same in every process
        image = self.transform(_read(self.root / os.fsdecode(bytes(self.files[index]))), choices)
        pixels = torch.from_numpy(np.array(image, dtype=np.uint8))
        return pixels.permute(2, 0, 1).contiguous(), int(self.labels[index])


def epoch_permutation(count: int, *, seed: int, epoch: int) -> Tensor:
    """0 .. count - 1 in an order that is a function of `seed` and `epoch` alone, so a resumed run goes on with it.

    >>> epoch_permutation(5, seed=1, epoch=0).tolist() == epoch_permutation(5, seed=1, epoch=0).tolist()
    True
    """
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
    return torch.randperm(count, generator=generator)


@dataclass(frozen=True, eq=False)
class ImageFolders:
    """Training and validation images of one set. ImageNet's test labels are not public: `val` is what is reported."""

    name: str
    train: ImageFolder
    val: ImageFolder
    classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD


def image_folders(
    data_dir: str | os.PathLike[str] | None = None, *, size: int = 224, resize: int = 256
) -> ImageFolders:
    """ImageNet: `train/CLASS/*` and `val/CLASS/*` in the data folder, or in its subfolder `imagenet`.

    Training: a random crop of 8 to 100 % of the area and aspect ratio 3/4 to 4/3, resized to `size`, mirrored half the
    time. Validation: shorter side resized to `resize`, central square of `size`. Nothing else, as in the paper.
    """
    folder = data_folder(data_dir)
    root = next((place for place in (folder / NAME, folder) if (place / "train").is_dir()), None)
    if root is None:
        raise MissingDataError(
            f"{NAME}: no folder {folder / NAME / 'train'} and no {folder / 'train'}. Get the images from the data "
            "set's own page (ImageNet: https://www.image-net.org, ILSVRC 2012, after registration) and unpack them to "
            f"{folder / NAME}/train/CLASS/ and {folder / NAME}/val/CLASS/, or name another folder with --data-dir or "
            "the environment variable GRANET_DATA"
        )
    train = ImageFolder(root / "train", RandomResizedCrop(size))
    val = ImageFolder(root / "val", ResizeCentreCrop(resize, size))
    if train.classes != val.classes:
        odd = sorted(set(train.classes) ^ set(val.classes))[0]
        where = "train" if odd in train.classes else "val"
        raise ValueError(f"{root}: class {odd!r} is in {where} only; train and val need the same class folders")
    return ImageFolders(NAME, train, val, len(train.classes), (3, size, size))


def _scan(root: Path) -> tuple[tuple[str, ...], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Class names, file names relative to `root`, labels. Arrays, not lists: workers then share their memory."""
    if not root.is_dir():
        raise MissingDataError(f"{root}: no such folder; it should hold one folder of images per class")
    classes = tuple(sorted(entry.name for entry in os.scandir(root) if entry.is_dir()))
    if not classes:
        raise ValueError(f"{root}: holds no class folders")
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(
            os.path.relpath(os.path.join(place, file), root)
            for place, _, names in os.walk(root / name)
            for file in names
            if file.lower().endswith(EXTENSIONS)
        )
        if not found:
            raise ValueError(f"{root / name}: holds no images ({', '.join(EXTENSIONS)})")
        files += found
        labels += [label] * len(found)
    return classes, np.array([os.fsencode(file) for file in files]), np.array(labels, dtype=np.int64)


def _read(path: Path) -> Image.Image:
    image = _pillow()
    try:
        with image.open(path) as file:
            return _rgb(file)
    except (OSError, ValueError, SyntaxError, RuntimeError, image.DecompressionBombError) as error:
        raise ValueError(f"{path}: not a readable image ({error})") from error


def _rgb(file: Image.Image) -> Image.Image:
    """One byte for each colour. Pillow alone clips numbers above 255, and 16-bit gray images would come out white.

    Of 16 bits the upper eight are kept, which is what Pillow does with the colours of 16-bit PNG files.
    """
    sixteen_bit = file.mode.startswith("I;16") or (file.mode == "I" and file.format in SIXTEEN_BIT_AS_INTEGERS)
    if sixteen_bit:
        return file.convert("I").point(lambda value: value * (1 / 256)).convert("RGB")
    if file.mode in ("I", "F"):
        raise ValueError(f"its mode is {file.mode}, numbers of which nothing says how large white is")
    return file.convert("RGB")


def _pillow() -> Any:
    """Pillow's `Image` module, imported only where images are read."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("reading image files needs Pillow (pip install pillow, or granet[data])") from error
    return Image

"""Image sets by name, already split and ready to move to a device.

`load` reads small sets whole into memory as bytes; `granet.data.imagefolder` streams large ones from a folder of image
files; `granet.data.augment` crops, flips and normalises on the device; `check` verifies downloaded files.

>>> list_datasets()
('cifar10', 'cifar100', 'digits', 'fashion-mnist', 'imagenet', 'mnist')
>>> load("digits").classes
10
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from granet.data.checksums import CheckResult, check
from granet.data.cifar import CIFAR10, CIFAR100, load_cifar
from granet.data.dataset import ImageSet
from granet.data.digits import digits
from granet.data.files import MissingDataError, data_folder
from granet.data.idx import fashion_mnist, mnist
from granet.data.imagefolder import ImageFolders, image_folders
from granet.error_line import did_you_mean

__all__ = [
    "CheckResult",
    "ImageFolders",
    "ImageSet",
    "MissingDataError",
    "check",
    "data_folder",
    "list_datasets",
    "load",
]

_FROM_FILES: dict[str, Callable[..., ImageSet]] = {
    "cifar10": partial(load_cifar, CIFAR10),
    "cifar100": partial(load_cifar, CIFAR100),
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
}


def list_datasets() -> tuple[str, ...]:
    """The names `load` knows."""
    return tuple(sorted((*_FROM_FILES, "digits", "imagenet")))


def load(
    name: str, *, data_dir: str | os.PathLike[str] | None = None, val: int | None = None
) -> ImageSet | ImageFolders:
    """The image set called `name`, split into training, validation and test parts.

    Files are looked for in `data_dir`, else in the folder that the environment variable GRANET_DATA names, else in
    `~/.cache/granet`; `digits` comes with the package. Nothing is downloaded: when files are missing, the error says
    where to get them and where to put them.

    The validation part is the last `val` training images in file order. By default: CIFAR-10 5,000 (45,000 are trained
    on) and CIFAR-100 none, both as in the paper's experiments; MNIST and Fashion-MNIST 5,000. The split of `digits` is
    fixed. Nothing is ever taken from the test part. `imagenet` stays in its files, and its validation images are what
    is reported, since the test labels are not public.
    """
    if name == "digits":
        data = digits()
        if val not in (None, len(data.val_labels)):
            raise ValueError(f"val={val}: must be {len(data.val_labels)}, the split of digits is fixed")
        return data
    if name == "imagenet":
        if val is not None:
            raise ValueError(f"val={val}: must be left out, the split of imagenet is fixed by its folders")
        return image_folders(data_dir)
    if name not in _FROM_FILES:
        hint = did_you_mean(name, list_datasets())
        raise ValueError(f"data={name!r}: must be one of {', '.join(list_datasets())}{hint}")
    return _FROM_FILES[name](data_dir, val)

"""The embedded default data: 8x8 images of handwritten digits, no download needed.

The file `digits.npz` is the 1797-image test part of UCI's "Optical Recognition of Handwritten Digits" (Alpaydin and
Kaynak, 1998, CC BY 4.0; see `NOTICE` beside it).
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch

from granet.data.dataset import ImageSet, channel_statistics

_PERIOD = 10  # of every ten images of a class, in file order:
_TEST = (4, 9)  # two are for testing,
_VAL = (7,)  # one for validation, the other seven for training


def digits() -> ImageSet:
    """1264 training, 178 validation and 355 test images of ten digits, 1x8x8, pixels spread from 0..16 to 0..255.

    The split is fixed and stratified: the images of each class are numbered in file order, and the last digit of that
    number decides: 4 and 9 are test, 7 is validation, all others train. No random number and no seed takes part, so
    figures from different runs and versions compare. The same writers appear in all three parts, which makes this an
    easier test than UCI's own split by writer; it is meant to show that training works, not to rank methods.

    >>> data = digits()
    >>> [len(labels) for labels in (data.train_labels, data.val_labels, data.test_labels)]
    [1264, 178, 355]
    """
    with files("granet.data").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        pixels, labels = arrays["images"].astype(np.uint16), arrays["labels"].astype(np.int64)

    place = np.empty(len(labels), dtype=np.int64)
    for label in range(10):
        members = labels == label
        place[members] = np.arange(members.sum()) % _PERIOD
    is_test, is_val = np.isin(place, _TEST), np.isin(place, _VAL)

    images = torch.from_numpy(((pixels * 255 + 8) // 16).astype(np.uint8)).unsqueeze(1)
    targets = torch.from_numpy(labels)
    test, val, train = (torch.from_numpy(part) for part in (is_test, is_val, ~(is_test | is_val)))
    mean, std = channel_statistics(images[train])
    return ImageSet(
        name="digits",
        train_images=images[train],
        train_labels=targets[train],
        val_images=images[val],
        val_labels=targets[val],
        test_images=images[test],
        test_labels=targets[test],
        classes=10,
        mean=mean,
        std=std,
    )

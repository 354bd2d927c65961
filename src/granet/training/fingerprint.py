"""A fingerprint of the images a run was trained on: a recipe names a set, but not the folder it is read from."""

from __future__ import annotations

import zlib
from typing import Any

from granet.data.dataset import ImageSet
from granet.training.feeds import Data


def fingerprint(data: Data) -> dict[str, Any]:
    """Name, sizes and a checksum of the labels, or of the files' names: the same for the same images in any place."""
    if isinstance(data, ImageSet):
        labels = {"train": data.train_labels, "val": data.val_labels, "test": data.test_labels}
        parts = {name: (len(part), part.cpu().numpy().tobytes()) for name, part in labels.items()}
    else:
        folders = {"train": data.train, "val": data.val}
        parts = {name: (len(part), part.files.tobytes()) for name, part in folders.items()}
    return {
        "name": data.name,
        "shape": list(data.shape),
        "classes": data.classes,
        **{name: size for name, (size, _) in parts.items()},
        "checksum": zlib.crc32(b"".join(content for _, content in parts.values())),
    }

"""Small data sets in the published formats, written where a test wants them."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from granet.data.published import FILES

Write = Callable[..., dict[str, "np.ndarray[Any, Any]"]]

FORMS = {
    ("cifar10", "python"): ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    ("cifar10", "binary"): ("cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
    ("cifar100", "python"): ("cifar-100-python", "cifar-100-python.tar.gz"),
    ("cifar100", "binary"): ("cifar-100-binary", "cifar-100-binary.tar.gz"),
}


def pickled(images: np.ndarray[Any, Any], **others: list[Any]) -> bytes:
    """A batch as Python 2 wrote the published ones, with byte strings and the former name of a module of numpy."""
    content = b"".join(b"U" + bytes([len(key)]) + key.encode() + pickle.dumps(others[key], 2)[2:-1] for key in others)
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    sides = b"".join(b"J" + struct.pack("<i", side) for side in images.shape)
    state = b"(K\x01" + sides + b"\x86" + dtype + b"\x89T" + struct.pack("<i", images.size) + images.tobytes() + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R" + state
    return b"\x80\x02}(" + content + b"U\x04data" + array + b"u."


def cifar_batch(form: str, name: str, images: np.ndarray[Any, Any], labels: list[int]) -> bytes:
    """The bytes of one batch."""
    if form == "python":
        keys = {"cifar10": ("labels",), "cifar100": ("fine_labels", "coarse_labels")}[name]
        others = {key: labels if "coarse" not in key else [0] * len(labels) for key in keys}
        return pickled(images.reshape(len(images), -1), **others, filenames=["x.png"] * len(images))
    lead = [np.array(labels, np.uint8)[:, None]]
    if name == "cifar100":
        lead.insert(0, np.full((len(labels), 1), 19, np.uint8))  # the coarse label, to be passed over
    return np.concatenate([*lead, images.reshape(len(images), -1)], axis=1).tobytes()


def pack(archive: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.fixture
def write_cifar(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a CIFAR set of `per_batch` images per file and returns its arrays; if `known`, it is the published one."""

    def write(
        root: Path, name: str, form: str, *, packed: bool = False, per_batch: int = 4, known: bool = True
    ) -> dict[str, np.ndarray[Any, Any]]:
        noise = np.random.default_rng(7)
        folder, archive = FORMS[name, form]
        training = [f"data_batch_{i}" for i in range(1, 6)] if name == "cifar10" else ["train"]
        testing = "test_batch" if name == "cifar10" else "test"
        suffix = ".bin" if form == "binary" else ""
        members, images, labels = {}, [], []
        for file in (*training, testing):
            images.append(noise.integers(0, 256, (per_batch, 3, 32, 32), dtype=np.uint8))
            labels.append(noise.integers(0, 10 if name == "cifar10" else 100, per_batch))
            batch = cifar_batch(form, name, images[-1], labels[-1].tolist())
            members[f"{folder}/{file}{suffix}"] = batch
            if form == "python" and known:
                monkeypatch.setitem(FILES[name], file, hashlib.md5(batch).hexdigest())
        if packed:
            pack(root / archive, {f"{folder}/readme.html": b"<html>", **members})
        else:
            (root / folder).mkdir(parents=True, exist_ok=True)
            for path, data in members.items():
                (root / path).write_bytes(data)
        return {
            "train_images": np.concatenate(images[:-1]),
            "train_labels": np.concatenate(labels[:-1]),
            "test_images": images[-1],
            "test_labels": labels[-1],
        }

    return write


def idx_bytes(array: np.ndarray[Any, Any]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture
def write_idx() -> Write:
    """Writes an IDX set of 12 training and 5 test images of 28x28 and returns its arrays."""

    def write(folder: Path, *, packed: bool = False) -> dict[str, np.ndarray[Any, Any]]:
        noise = np.random.default_rng(3)
        arrays = {
            "train-images-idx3-ubyte": noise.integers(0, 256, (12, 28, 28)),
            "train-labels-idx1-ubyte": noise.integers(0, 10, 12),
            "t10k-images-idx3-ubyte": noise.integers(0, 256, (5, 28, 28)),
            "t10k-labels-idx1-ubyte": noise.integers(0, 10, 5),
        }
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            data = idx_bytes(array)
            (folder / f"{name}.gz" if packed else folder / name).write_bytes(gzip.compress(data) if packed else data)
        return arrays

    return write

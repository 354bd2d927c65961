"""MNIST and Fashion-MNIST files, packed or not, and what is said about damaged ones."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from granet.data import MissingDataError, load
from granet.data.idx import parse_idx
from refusals import refused


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("mnist", "."),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
    ],
)
def test_reads(name: str, folder: str, packed: bool, tmp_path: Path, write_idx: Any) -> None:
    arrays = write_idx(tmp_path / folder, packed=packed)
    data = load(name, data_dir=tmp_path, val=2)
    assert data.train_images.shape == (10, 1, 28, 28)
    assert data.val_images.shape == (2, 1, 28, 28)
    assert np.array_equal(data.train_images[:, 0].numpy(), arrays["train-images-idx3-ubyte"][:10])
    assert np.array_equal(data.val_labels.numpy(), arrays["train-labels-idx1-ubyte"][10:])
    assert np.array_equal(data.test_images[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    assert np.array_equal(data.test_labels.numpy(), arrays["t10k-labels-idx1-ubyte"])
    assert (data.name, data.classes, len(data.mean)) == (name, 10, 1)


def test_the_two_sets_do_not_mix(tmp_path: Path, write_idx: Any) -> None:
    write_idx(tmp_path / "mnist")
    with pytest.raises(MissingDataError, match="fashion-mnist: no data in"):
        load("fashion-mnist", data_dir=tmp_path)


def test_damaged_files(tmp_path: Path, write_idx: Any) -> None:
    write_idx(tmp_path / "mnist")
    images, labels = (tmp_path / "mnist" / f"train-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    whole, digits = images.read_bytes(), labels.read_bytes()
    for content, message in (
        (whole[:-1], r"shape \(12, 28, 28\) asks for 9,408 bytes, there are 9,407"),
        (whole + b"x", "there are 9,409"),
        (b"", "not an IDX file of unsigned bytes with 3 dimension"),
        (digits, "not an IDX file of unsigned bytes with 3 dimension"),
        (b"\0\0\x0d" + whole[3:], "not an IDX file of unsigned bytes"),
        (bytes((0, 0, 8, 3)) + b"\xff" * 12, "asks for 79,228,162,"),
        (bytes((0, 0, 8, 3)) + bytes(12), "asks for 0 bytes"),
    ):
        images.write_bytes(content)
        with pytest.raises(ValueError, match=f"train-images-idx3-ubyte: .*{message}"):
            load("mnist", data_dir=tmp_path, val=0)
    images.write_bytes(whole)
    labels.write_bytes(digits[:-1] + b"\x0a")
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte: label 10, mnist has labels 0 to 9"):
        load("mnist", data_dir=tmp_path, val=0)
    labels.write_bytes(bytes((0, 0, 8, 1)) + (3).to_bytes(4, "big") + b"\1\2\3")
    with pytest.raises(ValueError, match="train has 12 images and 3 labels"):
        load("mnist", data_dir=tmp_path, val=0)


def test_too_few_images_and_images_of_two_sizes(tmp_path: Path, write_idx: Any) -> None:
    write_idx(tmp_path / "mnist")
    with refused(Path("mnist"), ..., "12", "5,000"):
        load("mnist", data_dir=tmp_path)
    header = bytes((0, 0, 8, 3)) + b"".join(size.to_bytes(4, "big") for size in (5, 8, 8))
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte").write_bytes(header + bytes(5 * 8 * 8))
    with refused(Path("mnist"), ..., "1x8x8", "1x28x28"):
        load("mnist", data_dir=tmp_path, val=2)


def test_damaged_gzip(tmp_path: Path, write_idx: Any) -> None:
    write_idx(tmp_path / "mnist", packed=True)
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for content in (whole[:-30], b"not gzip", whole[:200] + b"\xff" * 40 + whole[240:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte\.gz: damaged or truncated gzip file"):
            load("mnist", data_dir=tmp_path, val=0)


def test_gzip_bomb_is_not_unpacked(tmp_path: Path, write_idx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist", packed=True)
    monkeypatch.setattr("granet.data.files.MAX_BYTES", 100_000)
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(200_000)))
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte\.gz: unpacks to more than 100,000 bytes"):
        load("mnist", data_dir=tmp_path, val=0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_any_shape_round_trips(shape: list[int], data: st.DataObject) -> None:
    size = int(np.prod(shape))
    raw = data.draw(st.binary(min_size=size, max_size=size))
    header = bytes((0, 0, 8, len(shape))) + b"".join(side.to_bytes(4, "big") for side in shape)
    array = parse_idx("file", header + raw, len(shape))
    assert array.shape == tuple(shape)
    assert array.tobytes() == raw

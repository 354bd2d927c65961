"""CIFAR in all four published forms, from folders and archives, and what is said about missing and damaged files."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from granet.data import MissingDataError, data_folder, list_datasets, load
from refusals import refused

SETS = [("cifar10", "python"), ("cifar10", "binary"), ("cifar100", "python"), ("cifar100", "binary")]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "form"), SETS)
def test_every_form_reads_the_same(name: str, form: str, packed: bool, tmp_path: Path, write_cifar: Any) -> None:
    expected = write_cifar(tmp_path, name, form, packed=packed)
    data = load(name, data_dir=tmp_path, val=0)
    for part, array in expected.items():
        assert np.array_equal(getattr(data, part).numpy(), array), part
    assert (data.name, data.classes) == (name, 10 if name == "cifar10" else 100)
    assert data.train_images.dtype == torch.uint8
    assert data.train_labels.dtype == torch.int64


def test_python_batches_that_are_not_the_published_ones(tmp_path: Path, write_cifar: Any) -> None:
    """Whatever they hold: nothing of a pickle is looked at before its checksum."""
    write_cifar(tmp_path, "cifar10", "python", known=False)
    with pytest.raises(ValueError, match=r"data_batch_1: MD5 \w{32}, published c99cafc152244af753f735de768cd75f: "):
        load("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize("inside", ["cifar-10-batches-py", "cifar10/cifar-10-batches-py", "."])
def test_places_in_the_data_folder(inside: str, tmp_path: Path, write_cifar: Any) -> None:
    write_cifar(tmp_path / "made", "cifar10", "python")
    place = tmp_path / "data" / inside
    place.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "made" / "cifar-10-batches-py").rename(place)
    assert len(load("cifar10", data_dir=tmp_path / "data", val=0).train_labels) == 20


def test_split_is_the_end_of_the_training_files(tmp_path: Path, write_cifar: Any) -> None:
    expected = write_cifar(tmp_path, "cifar10", "binary")
    data = load("cifar10", data_dir=tmp_path, val=7)
    assert np.array_equal(data.train_images.numpy(), expected["train_images"][:13])
    assert np.array_equal(data.val_images.numpy(), expected["train_images"][13:])
    assert np.array_equal(data.val_labels.numpy(), expected["train_labels"][13:])
    assert len(data.test_labels) == 4


def test_default_splits_are_the_papers(tmp_path: Path, write_cifar: Any) -> None:
    for name in ("cifar10", "cifar100"):
        write_cifar(tmp_path, name, "binary", per_batch=1001 if name == "cifar10" else 20)
    ten, hundred = load("cifar10", data_dir=tmp_path), load("cifar100", data_dir=tmp_path)
    assert (len(ten.train_labels), len(ten.val_labels)) == (5, 5000)
    assert (len(hundred.train_labels), len(hundred.val_labels)) == (20, 0)
    assert ten.mean == (0.4914, 0.4822, 0.4465)
    assert ten.std == (0.2023, 0.1994, 0.2010)
    assert hundred.mean == (0.5071, 0.4865, 0.4409)
    assert hundred.std == (0.2673, 0.2564, 0.2762)


@pytest.mark.parametrize("val", [-1, 3.0, True, "5"])
def test_impossible_splits(val: Any, tmp_path: Path, write_cifar: Any) -> None:
    write_cifar(tmp_path, "cifar10", "binary")
    with refused("val", val, "from 0 to 19", "cifar10 has 20"):
        load("cifar10", data_dir=tmp_path, val=val)


def test_too_few_images_for_a_validation_part(tmp_path: Path, write_cifar: Any) -> None:
    """5,000 is the default, which nobody typed: the message is about the files."""
    write_cifar(tmp_path, "cifar10", "binary")
    for val, number in ((None, "5,000"), (20, "20")):
        with refused(Path("cifar10"), ..., "20 training images", f"keep {number} "):
            load("cifar10", data_dir=tmp_path, val=val)


def test_data_folder_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_cifar: Any) -> None:
    write_cifar(tmp_path, "cifar100", "binary")
    monkeypatch.setenv("GRANET_DATA", str(tmp_path))
    assert load("cifar100").name == "cifar100"
    assert data_folder("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("GRANET_DATA")
    assert data_folder() == Path.home() / ".cache" / "granet"


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist"])
def test_missing_files_come_with_directions(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        load(name, data_dir=tmp_path)
    message = str(caught.value)
    for part in (f"{name}: no data in {tmp_path}", "Get ", "http", "--data-dir", "GRANET_DATA"):
        assert part in message
    assert "\n" not in message
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, ValueError)


def test_unknown_name() -> None:
    with refused("data", "cifar-10", "10", "'cifar10'?)"):
        load("cifar-10")
    assert list_datasets() == ("cifar10", "cifar100", "digits", "fashion-mnist", "imagenet", "mnist")


def test_digits_have_one_split() -> None:
    size = len(load("digits").val_labels)
    assert len(load("digits", val=size).val_labels) == size
    with refused("val", 5, size):
        load("digits", val=5)


@pytest.mark.parametrize("damage", [b"", b"<html>404</html>", pickle.dumps({"data": io.BytesIO(b"")})])
def test_damaged_python_batches(damage: bytes, tmp_path: Path, write_cifar: Any) -> None:
    write_cifar(tmp_path, "cifar10", "python")
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    whole = path.read_bytes()
    for content in (damage, whole[:-1], whole + b".", whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cifar-10-batches-py/data_batch_3: MD5 .*: damaged, incomplete or ano"):
            load("cifar10", data_dir=tmp_path, val=0)


def test_damaged_binary_batches(tmp_path: Path, write_cifar: Any) -> None:
    write_cifar(tmp_path, "cifar100", "binary")
    path = tmp_path / "cifar-100-binary" / "train.bin"
    whole = path.read_bytes()
    for content in (whole[:-1], b""):
        path.write_bytes(content)
        with refused(Path("train.bin"), ..., "3074"):
            load("cifar100", data_dir=tmp_path)
    path.write_bytes(whole[:1] + b"\xc8" + whole[2:])
    with refused(Path("train.bin"), ..., "200", "100", "99"):
        load("cifar100", data_dir=tmp_path)


def test_missing_one_of_the_files(tmp_path: Path, write_cifar: Any) -> None:
    write_cifar(tmp_path, "cifar10", "python")
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(MissingDataError, match="data_batch_4: the file is missing, while others of the same set are"):
        load("cifar10", data_dir=tmp_path)


def test_damaged_archives(tmp_path: Path, write_cifar: Any) -> None:
    write_cifar(tmp_path, "cifar10", "python", packed=True)
    archive = tmp_path / "cifar-10-python.tar.gz"
    whole = archive.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes(255 - byte for byte in whole[middle : middle + 50]) + whole[middle + 50 :]
    for content in (whole[:middle], whole[:-4], b"no archive", b"", flipped):
        archive.write_bytes(content)
        with pytest.raises(ValueError, match=r"cifar-10-python\.tar\.gz: damaged or truncated archive"):
            load("cifar10", data_dir=tmp_path, val=0)


def test_archive_without_a_batch_and_with_links(tmp_path: Path) -> None:
    """A member that is a link is not followed: it counts as absent, whatever it points to."""
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as tar:
        for name in ("cifar-100-python/train", "../../test"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
    with pytest.raises(ValueError, match=r"cifar-100-python\.tar\.gz: has no member train"):
        load("cifar100", data_dir=tmp_path)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE], ids=["a name", "details"])
def test_archive_with_megabytes_about_a_member(tmp_path: Path, kind: bytes) -> None:
    about = tarfile.TarInfo("about")
    about.type, about.size = kind, 1 << 20  # a kilobyte of gzip; some versions of tarfile take minutes for it
    with gzip.open(tmp_path / "cifar-100-python.tar.gz", "wb") as file:
        file.write(about.tobuf(tarfile.GNU_FORMAT) + b"1" * about.size + tarfile.TarInfo("train").tobuf())
    with pytest.raises(
        ValueError, match=r"archive \(1,048,576 bytes about a member, this is not the published file\)$"
    ):
        load("cifar100", data_dir=tmp_path)


def test_archive_with_a_file_of_holes(tmp_path: Path) -> None:
    holes = tarfile.TarInfo("train")
    sparse = {"major": "0", "minor": "1", "size": str(1 << 29), "map": f"0,512,{(1 << 29) - 1},1"}
    holes.size, holes.pax_headers = 513, {f"GNU.sparse.{key}": value for key, value in sparse.items()}
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(holes, io.BytesIO(b"x" * holes.size))
    with pytest.raises(ValueError, match=r"cifar-100-python\.tar\.gz: has no member train"):
        load("cifar100", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("many", "invalid literal for int() with base 10: 'many'"),
        (str(1 << 40), "train claims 1,099,511,627,776 bytes"),
    ],
)
def test_archive_with_a_size_that_cannot_be_is_named(tmp_path: Path, size: str, said: str) -> None:
    member = tarfile.TarInfo("train")
    member.pax_headers = {f"GNU.sparse.{key}": value for key, value in {"size": size, "map": "0,0"}.items()}
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member)
    with pytest.raises(ValueError, match=r"cifar-100-python\.tar\.gz: damaged or truncated archive") as caught:
        load("cifar100", data_dir=tmp_path)
    assert said in str(caught.value)


def test_archive_that_climbs_out_of_its_folder_writes_nothing(tmp_path: Path, write_cifar: Any) -> None:
    write_cifar(tmp_path / "made", "cifar100", "binary")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    with tarfile.open(inner / "cifar-100-binary.tar.gz", "w:gz") as tar:
        for name in ("train.bin", "test.bin"):
            tar.add(tmp_path / "made" / "cifar-100-binary" / name, f"../../{name}")
    before = sorted(tmp_path.rglob("*"))
    assert len(load("cifar100", data_dir=inner).train_labels) == 4
    assert sorted(tmp_path.rglob("*")) == before

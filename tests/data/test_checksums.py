"""`check` tells published files from others, and names what is missing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from granet.data import checksums
from granet.data.checksums import CheckResult, check
from refusals import refused


def statuses(folder: Path) -> dict[str, str]:
    return {result.path.name: result.status for result in check(folder)}


def test_nothing_known_in_an_empty_folder(tmp_path: Path) -> None:
    assert check(tmp_path) == []
    with refused(Path("absent")):
        check(tmp_path / "absent")


def test_published_files_pass(tmp_path: Path, write_cifar: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the checksums of small files in place of the published ones."""
    write_cifar(tmp_path, "cifar10", "python")
    write_cifar(tmp_path, "cifar10", "python", packed=True)
    folder, archive = tmp_path / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz"
    for file in folder.iterdir():
        monkeypatch.setitem(checksums.FILES["cifar10"], file.name, hashlib.md5(file.read_bytes()).hexdigest())
    monkeypatch.setitem(checksums.ARCHIVES, archive.name, hashlib.md5(archive.read_bytes()).hexdigest())
    results = check(tmp_path)
    assert len(results) == 7
    assert all(result.status == "ok" and result.passed for result in results)
    (folder / "data_batch_2").write_bytes(b"")
    (folder / "test_batch").unlink()
    found = statuses(tmp_path)
    assert found.pop("data_batch_2") == "wrong"
    assert found.pop("test_batch") == "missing"
    assert set(found.values()) == {"ok"}


def test_other_files_are_wrong_and_say_so(tmp_path: Path, write_cifar: Any) -> None:
    write_cifar(tmp_path, "cifar100", "python", packed=True)
    (result,) = check(tmp_path)
    assert not result.passed
    assert "published eb9058c3a382ffc7106e4002c42a8d85" in result.detail


def test_forms_without_checksums_are_parsed(
    tmp_path: Path, write_cifar: Any, write_idx: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar(tmp_path, "cifar10", "binary")
    write_idx(tmp_path / "mnist")
    results = check(tmp_path)
    assert len(results) == 10
    assert {result.status for result in results} == {"wrong"}
    assert {result.detail.partition(",")[0] for result in results} == {"4 items", "12 items", "5 items"}
    monkeypatch.setattr(checksums, "SIZES", {"data_batch": 4, "test": 4, "train": 1, "train-": 12, "t10k-": 5})
    assert {result.status for result in check(tmp_path)} == {"well-formed"}
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01")
    broken = [result for result in check(tmp_path) if not result.passed]
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte"
    assert broken == [CheckResult(path, "wrong", "not an IDX file of unsigned bytes with 1 dimension(s)")]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_a_folder_that_may_be_of_either_mnist_is_of_the_one_that_fits(
    name: str, tmp_path: Path, write_idx: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same names of files, and the folder of one need not be named after it."""
    write_idx(tmp_path, packed=True)
    for file in tmp_path.iterdir():
        monkeypatch.setitem(checksums.FILES[name], file.name, hashlib.md5(file.read_bytes()).hexdigest())
    assert [result.status for result in check(tmp_path)] == ["ok"] * 4
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(b"")
    (broken,) = [result for result in check(tmp_path) if not result.passed]
    assert f"published {checksums.FILES[name]['t10k-images-idx3-ubyte.gz']}" in broken.detail


def test_packed_idx_files_are_compared(tmp_path: Path, write_idx: Any) -> None:
    write_idx(tmp_path / "fashion-mnist", packed=True)
    results = check(tmp_path)
    assert len(results) == 4
    assert all("published" in result.detail and result.status == "wrong" for result in results)

"""Files that appear whole or not at all, and what is said where they cannot."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors import SafetensorError

from granet.files import DISK_ERRORS, atomic, make_folder, parse_json, read_json, read_toml, write_text, writing_to
from refusals import refused


def test_a_read_only_disk_is_what_the_error_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it refuses to remove the temporary file, which was never made."""

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "read-only: unlink", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="read-only: open") as raised, atomic(tmp_path / "a.csv") as temporary:
        raise OSError(errno.EROFS, "read-only: open", str(temporary))
    assert raised.value.filename == str(tmp_path / "a.csv")


def test_an_error_without_a_name_gets_that_of_the_file_and_others_keep_theirs(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full") as raised, atomic(tmp_path / "a.csv") as temporary:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "full")
    assert str(raised.value).endswith(f" full: {str(tmp_path / 'a.csv')!r}")
    with pytest.raises(FileNotFoundError) as raised, atomic(tmp_path / "a.csv"):
        (tmp_path / "other").read_text()
    assert raised.value.filename == str(tmp_path / "other")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as raised, atomic(tmp_path / "folder") as temporary:
        temporary.write_text("whole")
    assert str(raised.value).endswith(f"directory: {str(tmp_path / 'folder')!r}")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_device_or_a_pipe_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    """An administrator may replace /dev/null: it would be an ordinary file from then on, for everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="no ordinary file") as raised, atomic(pipe) as temporary:
        temporary.write_text("whole")
    assert raised.value.filename == str(pipe)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the name is there before anybody is told: a power failure leaves the old file or the new one."""
    path, steps, replace = tmp_path / "a.csv", [], os.replace
    path.write_text("old")

    def rename(source: Path, target: Path) -> None:
        replace(source, target)
        steps.append("renamed")

    monkeypatch.setattr(os, "replace", rename)
    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append(os.fstat(descriptor).st_ino))
    write_text(path, "new")
    assert path.read_text() == "new"
    assert steps == [path.stat().st_ino, "renamed", tmp_path.stat().st_ino]


def test_no_descriptor_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep writes thousands of files."""
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    write_text(tmp_path / "a.csv", "whole")
    for descriptor in flushed:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_threads_that_write_one_file_at_once_do_not_meet(tmp_path: Path) -> None:
    path, both_write = tmp_path / "a.csv", threading.Barrier(2)

    def write(letter: str) -> None:
        with atomic(path) as temporary, temporary.open("w") as file:
            file.write(letter * 10)
            both_write.wait(60)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, "ab"))
    assert path.read_text() in ("a" * 10, "b" * 10)
    assert os.listdir(tmp_path) == ["a.csv"]


def test_what_safetensors_could_not_write_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large") as raised, atomic(tmp_path / "a"):
        raise SafetensorError("Error while serializing: I/O error: File too large (os error 27)")
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(tmp_path / "a"))
    with pytest.raises(SafetensorError, match="header"), atomic(tmp_path / "a"):
        raise SafetensorError("header too large")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_the_field_is_named(number: int) -> None:
    for errors in (None, DISK_ERRORS):
        with refused("out", "here", "(why)"), writing_to("out", Path("here"), errors=errors):
            raise OSError(number, "why")


def test_other_errors_than_those_asked_for_stay_what_they_are() -> None:
    with pytest.raises(FileNotFoundError), writing_to("out", Path("here"), errors=DISK_ERRORS):
        raise FileNotFoundError(errno.ENOENT, "an image is gone")


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    for _ in range(2):
        make_folder("out", tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / "file" / "a"):
        with refused("out", wrong, unchanged=(tmp_path,)):
            make_folder("out", wrong)


def test_a_folder_that_is_there_but_takes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*, dir: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with refused("out", tmp_path, "(Read-only file system)"):
        make_folder("out", tmp_path)


def test_a_table_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_bytes('data = "größer"'.encode("latin-1"))
    with refused("spec", tmp_path / "grid.toml", "TOML"):
        read_toml(tmp_path / "grid.toml", "spec")


def test_json_that_is_no_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with refused(path):
            read_json(path, dict)


def test_json_that_is_nested_without_end_is_damaged() -> None:
    with refused(Path("summary.json")):
        parse_json("summary.json", b"[" * 200_000, dict)


def test_text_may_name_a_path_that_is_no_utf_8(tmp_path: Path) -> None:
    write_text(tmp_path / "a.html", "runs in " + os.fsdecode(b"runs-\xff, \xc2\xb1"))
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == r"runs in runs-\udcff, ±"

"""A folder is locked for one at a time, until that one lets go or is killed."""

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from granet.locks import Held, locked

HOLD = """
import sys
from pathlib import Path
from granet.locks import locked

with locked(Path(sys.argv[1]), wait=True):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has locked the folder, until its input ends."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        too_long = threading.Timer(60, process.kill)
        too_long.start()
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            too_long.cancel()
            process.kill()


@pytest.mark.parametrize("killed", [True, False])
def test_who_waits_gets_the_lock_once_it_is_free(tmp_path: Path, holder: subprocess.Popen[str], killed: bool) -> None:
    got = threading.Event()

    def wait_for_it() -> None:
        with locked(tmp_path, wait=True):
            got.set()

    waiting = threading.Thread(target=wait_for_it)
    waiting.start()
    assert not got.wait(0.3)
    if killed:
        holder.kill()
    else:
        assert holder.stdin is not None
        holder.stdin.close()
    waiting.join(30)
    assert got.is_set()


def test_who_does_not_wait_is_told(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(Held), locked(tmp_path, wait=False):
        pass
    holder.kill()
    holder.wait(60)
    with locked(tmp_path, wait=False):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_keeps_a_file_that_was_opened_after_a_lock_was_let_go(tmp_path: Path) -> None:
    with locked(tmp_path, wait=False):
        pass
    with (tmp_path / "file").open("wb") as file:  # the system gives it the number that the lock had
        child = multiprocessing.get_context("fork").Process(target=os.write, args=(file.fileno(), b"child"))
        child.start()
        child.join(60)
        assert child.exitcode == 0
    assert (tmp_path / "file").read_bytes() == b"child"


def test_without_locks_in_the_system_nobody_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.locks.fcntl", None)
    with locked(tmp_path, wait=False), locked(tmp_path, wait=True):
        pass

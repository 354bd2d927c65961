"""A real process, killed at random moments, ends where an undisturbed one ends."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from granet.cli import main

KILLS = 20
EPOCHS = 60
COMMAND = "train --batch-size 128 --no-dense-twin --checkpoint-every 0.02 --epochs"


def arguments(epochs: int) -> list[str]:
    return [*COMMAND.split(), str(epochs)]


def start(folder: Path, epochs: int = EPOCHS) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "granet", *arguments(epochs)]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fork(folder: Path, epochs: int = EPOCHS) -> BaseProcess:
    """As above, in a process that has its imports done: it starts in a moment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["granet.cli.train", "torch._dynamo"])
    process = context.Process(target=main, args=([*arguments(epochs), "--out", str(folder / "runs")],))
    process.start()
    return process


def run_folder(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


def wait_for_training(folder: Path, process: BaseProcess) -> None:
    """Until this process, and not one before it, has written its first metrics."""
    began = time.time_ns()
    while process.is_alive():
        if any(path.stat().st_mtime_ns > began for path in folder.glob("runs/*/metrics.jsonl")):
            return
        time.sleep(0.01)


def test_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    undisturbed = start(tmp_path / "undisturbed")
    moments = random.Random(0)
    folder = tmp_path / "killed"
    for kill in range(KILLS):
        process = fork(folder)
        if kill % 5:
            wait_for_training(folder, process)
        time.sleep(moments.uniform(0, 0.5))
        assert process.is_alive(), f"the run was over before kill {kill}"
        process.kill()
        process.join()
    assert start(folder).wait(timeout=300) == 0
    assert undisturbed.wait(timeout=300) == 0
    one, other = run_folder(tmp_path / "undisturbed"), run_folder(folder)
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    lines = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (one, other)]
    assert len(lines[0]) == len(lines[1]) == EPOCHS
    for mine, theirs in zip(*lines, strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
    assert not [path for path in other.iterdir() if path.name.startswith(".")]  # nothing half-written is left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_politely_and_is_resumed(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path / "here", epochs=8)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "here").glob("runs/*/checkpoint-*.pt")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=30) == 130
    run = run_folder(tmp_path / "here")
    assert not (run / "summary.json").exists()
    again = fork(tmp_path / "here", epochs=8)
    again.join(timeout=120)
    assert again.exitcode == 0 and (run / "summary.json").exists()

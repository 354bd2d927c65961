"""A real process, killed or interrupted at chosen moments, ends where an undisturbed one ends."""

import json
import multiprocessing
import os
import random
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from granet.cli import main

pytestmark = pytest.mark.slow

CHANGES = {"open", "os.mkdir", "os.rename", "os.remove"}  # nothing else changes what the next start finds


def train(runs: Path, number: signal.Signals | None, change: int) -> None:
    """`granet train` in a process that gets a signal just before one of its changes in the folder of runs."""
    left = change

    def before(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in CHANGES and str(arguments[0]).startswith(str(runs)):
            left -= 1
            if left == 0 and number is not None:
                os.kill(os.getpid(), number)

    sys.addaudithook(before)
    options = "--epochs 6 --batch-size 128 --no-dense-twin --checkpoint-every 0"  # after each step
    main(["train", *options.split(), "--out", str(runs)])


def end(runs: Path, number: signal.Signals | None = None, change: int = 0) -> int | None:
    """How a process ends that has its imports done: it starts in a moment."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["granet.cli.many_runs", "granet.training", "torch._dynamo"])
    process: BaseProcess = context.Process(target=train, args=(runs, number, change))
    process.start()
    try:
        process.join(timeout=300)
        return process.exitcode
    finally:
        process.kill()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("undisturbed")
    assert end(runs) == 0
    return runs


def check_same(undisturbed: Path, runs: Path) -> None:
    (one,), (other,) = undisturbed.iterdir(), runs.iterdir()
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    lines = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (one, other)]
    assert len(lines[0]) == len(lines[1]) == 6
    for mine, theirs in zip(*lines, strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}  # nothing half-written


def test_kills_at_random_moments_change_nothing(undisturbed: Path, tmp_path: Path) -> None:
    """Of a start to its end, as often as it takes: the first are killed before there is anything to go on from."""
    moments = random.Random(0)
    ends = [end(tmp_path, signal.SIGKILL, change) for change in (3, 9, 15)]
    while ends[-1] != 0:
        assert ends[-1] == -signal.SIGKILL
        ends.append(end(tmp_path, signal.SIGKILL, moments.randrange(10, 80)))
    assert len(ends) > 10
    check_same(undisturbed, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_politely_and_is_resumed(undisturbed: Path, tmp_path: Path, number: signal.Signals) -> None:
    assert end(tmp_path, number, 40) == 130
    (run,) = tmp_path.iterdir()
    assert list(run.glob("checkpoint-*.pt")) and not (run / "summary.json").exists()
    assert end(tmp_path) == 0
    check_same(undisturbed, tmp_path)

"""Several runs at once: each as if alone, a crash in one not felt by the others, all taken up again."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from granet.data import load
from granet.studies.jobs import Place
from granet.studies.jobs.job import take_next
from granet.studies.jobs.processes import in_processes
from granet.studies.jobs.threads import _streams, in_threads
from granet.training import Recipe, Run, RunDir
from granet.training.rundir import run_name

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
RECIPES = [
    Recipe(method=method, method_fields={"sparsity": 0.8}, epochs=2, batch_size=256)
    for method in ("static", "magnet", "static")
]
RECIPES[2] = Recipe(method="static", method_fields={"sparsity": 0.8}, epochs=2, batch_size=256, seed=3)


@pytest.mark.parametrize("how", [in_processes, in_threads])
def test_runs_side_by_side_equal_runs_alone_and_a_bad_one_fails_alone(tmp_path: Path, how) -> None:
    events = list(how(RECIPES, Place(CPU, tmp_path / "packed"), 2, lambda: False))
    ends = {event.recipe: event.error for event in events if event.record is None}
    assert [ends[RECIPES[0]], ends[RECIPES[2]]] == [None, None]
    assert ends[RECIPES[1]].startswith("ValueError: method='magnet': must be one of")
    data = load("digits")
    torch.set_num_threads(1)
    for recipe in (RECIPES[0], RECIPES[2]):
        alone = Run(recipe, data, CPU, tmp_path / "alone")
        epochs = [record.epoch for record in alone.epochs()]
        assert [event.record.epoch for event in events if event.recipe == recipe and event.record] == epochs == [1, 2]
        files = [RunDir.find(tmp_path / place, recipe).path / "model.safetensors" for place in ("packed", "alone")]
        mine, theirs = map(load_file, files)
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_a_model_that_is_traced_does_not_disturb_the_others(tmp_path: Path) -> None:
    """Torch's tracer stands in for the call of every model of the process while it is at work."""
    fields = {"sparsity": 0.5, "pattern": "filter"}
    recipes = [
        Recipe(
            method="static", method_fields=fields, exclude=("classifier.weight",), epochs=1, batch_size=64, seed=seed
        )
        for seed in range(6)
    ]
    events = in_threads(recipes, Place(CPU, tmp_path), 3, lambda: False)
    assert [event.error for event in events if event.record is None] == [None] * len(recipes)


def test_a_run_that_takes_its_process_down_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal\ndef net(**_): os.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.syspath_prepend(tmp_path)
    deadly = Recipe(model="deadly:net", method="dense", method_fields={}, epochs=1)
    events = in_processes([deadly, RECIPES[0], RECIPES[2]], Place(CPU, tmp_path / "runs"), 1, lambda: False)
    ends = {event.recipe: event.error for event in events if event.record is None}
    assert ends == {deadly: "its process ended with code -9", RECIPES[0]: None, RECIPES[2]: None}


def test_a_run_that_ends_because_all_are_to_stop_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to a whole group of processes ends runs before the sweep tells them, and who knows their exit code."""
    stopped = tmp_path / "stopped"
    (tmp_path / "ended.py").write_text(f"import os\ndef net(**_): open({str(stopped)!r}, 'w'); os._exit(255)\n")
    monkeypatch.syspath_prepend(tmp_path)
    ended = Recipe(model="ended:net", method="dense", method_fields={}, epochs=1)
    assert not list(in_processes([ended, RECIPES[0]], Place(CPU, tmp_path / "runs"), 1, stopped.exists))


@pytest.mark.parametrize("how", [in_processes, in_threads])
def test_a_run_waits_for_its_parent(tmp_path: Path, how) -> None:
    first = replace(RECIPES[0], epochs=1)
    child = replace(first, method="lth", parent=run_name(first))
    orphan = replace(child, parent="nobody")
    events = list(how([child, orphan, first], Place(CPU, tmp_path), 2, lambda: False))
    ends = [(event.recipe, event.error) for event in events if event.record is None]
    assert ends.index((first, None)) < ends.index((child, None))
    assert "parent='nobody': must be the folder of a finished run" in dict(ends)[orphan]
    mask = load_file(RunDir.find(tmp_path, first).path / "model.safetensors")["classifier.weight"] != 0
    kept = load_file(RunDir.find(tmp_path, child).path / "model.safetensors")["classifier.weight"] != 0
    assert not (kept & ~mask).any()


@pytest.mark.parametrize("how", [in_processes, in_threads])
def test_a_run_without_data_or_that_leaves_the_interpreter_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how
) -> None:
    (tmp_path / "leaving.py").write_text("import sys\ndef net(**_): sys.exit(3)\n")
    (tmp_path / "piping.py").write_text("def net(**_): raise BrokenPipeError('its own')\n")
    monkeypatch.syspath_prepend(tmp_path)
    lost = replace(RECIPES[0], data="nowhere")
    leaving, piping = (replace(RECIPES[0], model=f"{name}:net") for name in ("leaving", "piping"))
    events = how([lost, leaving, piping, RECIPES[0]], Place(CPU, tmp_path / "runs"), 1, lambda: False)
    ends = {event.recipe: event.error for event in events if event.record is None}
    assert ends[lost].startswith("ValueError: data='nowhere': must be one of") and ends[leaving] == "SystemExit: 3"
    assert ends[piping] == "BrokenPipeError: its own"  # not that of a sweep which is gone
    assert ends[RECIPES[0]] is None


def test_threads_end_when_nobody_listens_any_more(tmp_path: Path) -> None:
    recipe, before = replace(RECIPES[0], epochs=10_000), set(threading.enumerate())
    events = in_threads([recipe], Place(CPU, tmp_path), 1, lambda: False)
    next(events)
    assert set(threading.enumerate()) > before
    events.close()
    assert set(threading.enumerate()) == before
    assert list(RunDir.find(tmp_path, recipe).path.glob("checkpoint-*.pt"))


def test_a_branch_waits_only_for_the_state_that_it_starts_from(tmp_path: Path) -> None:
    trunk = replace(RECIPES[0], epochs=4, keep=(1,))
    branch = replace(trunk, method="prune-once", method_fields={"rate": 0.5}, parent=run_name(trunk), keep=())
    branch = replace(branch, branch_epoch=1, hold=1)
    waiting = deque([branch])
    assert take_next(waiting, [trunk], tmp_path) is None
    epochs = Run(trunk, load("digits"), CPU, tmp_path).epochs()
    next(epochs)
    assert take_next(waiting, [trunk], tmp_path) is branch
    list(Run(branch, load("digits"), CPU, tmp_path).epochs())
    assert [record.epoch for record in epochs] == [2, 3, 4]


SPEC = """
batch_size = 128
epochs = 14
sparsity = 0.8
seed = [0, 1, 2]
method = "static"
"""


def sweep(folder: Path, *options: str, **how: bool) -> subprocess.Popen[str]:
    (folder / "grid.toml").write_text(SPEC)
    command = [sys.executable, "-m", "granet", "sweep", "grid.toml", "--packed", "2", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how
    )


def wait_for(condition, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline and (process is None or process.poll() is None)
        time.sleep(0.01)


def free(folder: Path) -> bool:
    """Whether no process trains in any run folder."""
    try:
        for run in (folder / "runs").glob("*/"):
            with RunDir(run).locked():
                pass
    except ValueError:
        return False
    return True


def test_a_sweep_that_is_stopped_and_killed_is_finished_by_the_same_command(tmp_path: Path) -> None:
    begun = lambda: len(list(tmp_path.glob("runs/*/metrics.jsonl"))) == 2  # noqa: E731
    with sweep(tmp_path, "--checkpoint-every", "1000", start_new_session=True) as first:
        wait_for(begun, first)
        os.killpg(first.pid, signal.SIGINT)  # as Ctrl-C in a terminal: to the sweep and to its runs
        assert first.wait(timeout=60) == 130
    assert free(tmp_path) and len(list(tmp_path.glob("runs/*/checkpoint-*.pt"))) == 2
    listed = sweep(tmp_path, "--dry-run")
    assert listed.communicate(timeout=120)[0].count("epoch ") + listed.returncode == 2

    with sweep(tmp_path, "--checkpoint-every", "0.1") as second:
        wait_for(lambda: not free(tmp_path), second)
        second.kill()
        second.wait(timeout=60)
    wait_for(lambda: free(tmp_path))  # its runs notice and end

    third = sweep(tmp_path)
    output = third.communicate(timeout=200)[0]
    assert third.returncode == 0, output
    with (tmp_path / "runs" / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["seed"] for row in table] == ["0", "1", "2"]
    assert {(row["method"], row["model"], row["data"], row["sparsity_asked"]) for row in table} == {
        ("static", "digits_net", "digits", "0.8")
    }
    assert all(float(row["sparsity_achieved"]) == pytest.approx(0.8, abs=1e-5) for row in table)
    assert all(f"{float(row['accuracy_last']):.2f}" in output for row in table)
    again = sweep(tmp_path)
    assert "3 of 3 runs are done already" in again.communicate(timeout=120)[0] and again.returncode == 0


def test_a_single_thread_stays_on_the_default_stream() -> None:
    (stream,) = _streams(torch.device("cuda"), 1)
    assert isinstance(stream, nullcontext)

"""Loggers by name, and what a run does with those that it is given; test_logs.py reads back what they wrote."""

import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from granet.data import load
from granet.training import EpochRecord, Recipe, Run, Summary
from granet.training.loggers import Logger, create_loggers
from refusals import refused

RECIPE = Recipe(method_fields={"sparsity": 0.8, "every": "1ep"}, epochs=3, batch_size=400)


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("wandb", "torch.utils.tensorboard"):  # made, but not started
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    assert create_loggers([]) == []
    kinds = [type(logger).__name__ for logger in create_loggers(["wandb", "tensorboard", "wandb"])]
    assert kinds == ["Wandb", "TensorBoard"]
    with refused("log", "tensorbord"):
        create_loggers(["tensorboard", "tensorbord"])


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_one_line_before_anything_is_done(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from granet.cli import main

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["train", "--log", name])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith(f"granet: log='{name}': needs {name}: pip install 'granet[{name}]'")
    assert message.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_a_package_that_does_not_work_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlflow.py").write_text("raise ImportError('this Python is too old')")
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with refused("log", "mlflow"):
        create_loggers(["mlflow"])


class Notes:
    """A logger of the user's own. It fails in the calls that it is told to."""

    def __init__(self, *failing: str) -> None:
        self.calls: list[Any] = []
        self._failing = failing

    def start(self, recipe: Recipe, folder: Path, epochs_done: int) -> None:
        self._note("start", epochs_done)

    def epoch(self, record: EpochRecord) -> None:
        self._note("epoch", record.epoch)

    def finish(self, summary: Summary) -> None:
        self._note("finish", summary.sparsity_asked)

    def close(self) -> None:
        self._note("close")

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] in self._failing:
            raise RuntimeError(f"no {call[0]}\nand more")


def run(out: Path, *loggers: Logger) -> Run:
    return Run(RECIPE, load("digits"), torch.device("cpu"), out, loggers=loggers)


def warned(records: Iterator[EpochRecord]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [record.epoch for record in records] == [1, 2, 3]
    return [str(one.message) for one in caught if "granet" in str(one.message)]


@pytest.mark.slow
def test_a_failing_logger_does_not_lose_the_run(tmp_path: Path) -> None:
    good, bad, worse, late = Notes(), Notes("epoch", "close"), Notes("finish"), Notes("close")
    one = run(tmp_path, bad, good, worse, late)
    messages = warned(one.epochs())
    assert one.summary is not None and one.folder.summary == one.summary
    assert good.calls == [("start", 0), ("epoch", 1), ("epoch", 2), ("epoch", 3), ("finish", 0.8), ("close",)]
    assert bad.calls == [("start", 0), ("epoch", 1), ("close",)]  # never called again
    assert worse.calls[-2:] == [("finish", 0.8), ("close",)]
    assert messages == [
        "granet: Notes.epoch failed (RuntimeError: no epoch); the run goes on without it",
        "granet: Notes.finish failed (RuntimeError: no finish); the run goes on without it",
        "granet: Notes.close failed (RuntimeError: no close); the run goes on without it",
    ]


def test_a_logger_that_cannot_start_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    good, bad = Notes(), Notes("start")
    with refused("log"):
        next(run(tmp_path, good, bad).epochs())
    assert good.calls == [("start", 0), ("close",)] and bad.calls == [("start", 0)]


@pytest.mark.slow
def test_a_resumed_run_goes_on_in_its_loggers_and_a_finished_one_says_nothing(tmp_path: Path) -> None:
    first, second, third = Notes(), Notes(), Notes()
    epochs = run(tmp_path, first).epochs(checkpoint_every=0)
    for _ in range(3):
        next(epochs)  # with the checkpoint of epoch 2, for the last epoch has none
    epochs.close()  # as an interrupt would
    assert first.calls == [("start", 0), ("epoch", 1), ("epoch", 2), ("epoch", 3), ("close",)]
    again = run(tmp_path, second)
    assert [record.epoch for record in again.epochs()] == [3]
    assert second.calls == [("start", 2), ("epoch", 3), ("finish", 0.8), ("close",)]
    assert list(run(tmp_path, third).epochs()) == [] and third.calls == []

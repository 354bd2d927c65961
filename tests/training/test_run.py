"""A run in its folder, where others may be at work too."""

import itertools
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from granet.data import load
from granet.training import Recipe, Run
from granet.training.interrupt import stop_signals
from refusals import refused

CPU = torch.device("cpu")
DIGITS = load("digits")
FEW = replace(DIGITS, train_images=DIGITS.train_images[:128], train_labels=DIGITS.train_labels[:128])
RECIPE = Recipe(method_fields={"sparsity": 0.8, "every": 2}, epochs=2, batch_size=256)


@pytest.mark.slow
def test_a_run_that_another_process_finished_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    first, second = (Run(RECIPE, load("digits"), CPU, tmp_path) for _ in range(2))
    list(first.epochs(checkpoint_every=0))
    before = {path.name: path.read_bytes() for path in first.folder.path.iterdir()}
    with pytest.raises(ValueError, match="was finished meanwhile"):
        list(second.epochs())
    for done in (first, Run(RECIPE, load("digits"), CPU, tmp_path)):
        assert list(done.epochs()) == [] and done.epochs_done == 2
    assert {path.name: path.read_bytes() for path in first.folder.path.iterdir()} == before
    assert not list(first.folder.path.glob("checkpoint-*.pt"))  # nobody goes on from a run that is done


@pytest.mark.slow
def test_a_narrow_network_is_told_by_its_share_of_the_whole_one(tmp_path: Path) -> None:
    recipe = replace(RECIPE, model="resnet20", width=0.5, method="dense", method_fields={}, epochs=1, batch_size=64)
    run = Run(recipe, FEW, CPU, tmp_path)
    list(run.epochs())
    assert run.summary is not None and run.summary.sparsity == 0
    assert run.summary.flops_ratio == pytest.approx(0.25, abs=0.01)
    assert run.summary.train_flops == pytest.approx(run.summary.flops_ratio)
    share = run.summary.flops_ratio
    sparse = replace(recipe, method="static", method_fields={"sparsity": 0.9, "distribution": "uniform"})
    record = next(Run(sparse, FEW, CPU, tmp_path).epochs())
    assert record.flops == record.train_flops == pytest.approx(0.1 * share, rel=0.01)


def test_checkpoints_come_as_often_as_asked_for_and_are_named_by_their_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second for each look at the clock: once before the first step, once after each, once when one is written."""
    seconds = itertools.count()
    monkeypatch.setattr("granet.training.run.time.monotonic", lambda: float(next(seconds)))
    saved: list[int] = []
    monkeypatch.setattr("granet.training.run.save_checkpoint", lambda folder, step, state: saved.append(step))
    next(Run(replace(RECIPE, batch_size=8), FEW, CPU, tmp_path).epochs(checkpoint_every=4.0))
    assert saved == [4, 8, 12, 16]


def test_a_run_that_is_taken_up_again_keeps_what_it_wrote_before(tmp_path: Path) -> None:
    recipe, calls = replace(RECIPE, batch_size=64), itertools.count(1)
    first = Run(recipe, FEW, CPU, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        list(first.epochs(stop=lambda: next(calls) == 3))  # in the second epoch
    config = first.folder.path / "config.json"
    values = json.loads(config.read_text())
    values["environment"]["commit"] = "of the first start"
    config.write_text(json.dumps(values))
    again = Run(recipe, FEW, CPU, tmp_path)
    assert again.epochs_done == 1
    next(again.epochs())
    assert [record.epoch for record in again.folder.records] == [1, 2]
    assert again.folder.environment["commit"] == "of the first start"


def test_the_weights_that_are_saved_are_those_that_were_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "_plot", lambda run: None)
    run = Run(replace(RECIPE, epochs=1, batch_size=32, ema=0.9), FEW, CPU, tmp_path)
    list(run.epochs())
    saved = load_file(run.folder.path / "model.safetensors")
    averaged, trained = run.training.final_model.state_dict(), run.training.model.state_dict()
    assert all(torch.equal(saved[name], averaged[name]) for name in averaged)
    assert not torch.equal(saved["classifier.weight"], trained["classifier.weight"])


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_seconds_between_checkpoints_are_a_number(tmp_path: Path, seconds: float) -> None:
    run = Run(Recipe(epochs=1, method="dense", method_fields={}), load("digits"), torch.device("cpu"), tmp_path)
    with refused("checkpoint_every", seconds, unchanged=(tmp_path,)):
        next(run.epochs(seconds))


def test_a_matplotlib_that_does_not_work_costs_the_picture_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # importing it fails, as with one for another numpy
    run = Run(Recipe(method="dense", method_fields={}, epochs=1), load("digits"), CPU, tmp_path)
    with pytest.warns(UserWarning, match=r"granet: matplotlib failed \(.*\); the run has no curves.png"):
        list(run.epochs())
    assert run.summary is not None
    assert (run.folder.path / "model.safetensors").is_file()
    assert not (run.folder.path / "curves.png").exists()


def test_the_picture_shows_all_epochs_and_says_which_run_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("granet.training.plots.plot_run", drawn := Mock())
    run = Run(replace(RECIPE, batch_size=64, seed=3), FEW, CPU, tmp_path)
    records = list(run.epochs())
    drawn.assert_called_once_with(records, run.folder.path / "curves.png", "granet on digits, seed 3")


def test_a_picture_that_the_disk_has_no_room_for_leaves_the_run_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights would have none either: nothing says that it is done, and it goes on from its checkpoint."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("granet.training.plots.plot_run", Mock(side_effect=OSError(28, "No space left on device")))
    run = Run(replace(RECIPE, epochs=1, batch_size=32), FEW, CPU, tmp_path)
    with pytest.raises(OSError, match="No space left"):
        list(run.epochs())
    assert run.folder.summary is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait_for_the_end_of_a_step(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as stop:
        assert not stop()
        signal.raise_signal(number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before

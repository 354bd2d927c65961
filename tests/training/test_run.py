"""A run in its folder, where others may be at work too."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from granet.data import load
from granet.training import Recipe, Run

CPU = torch.device("cpu")
RECIPE = Recipe(method_fields={"sparsity": 0.8, "every": 2}, epochs=2, batch_size=256)


def test_a_run_that_another_process_finished_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    first, second = (Run(RECIPE, load("digits"), CPU, tmp_path) for _ in range(2))
    list(first.epochs())
    before = {path.name: path.read_bytes() for path in first.folder.path.iterdir()}
    with pytest.raises(ValueError, match="was finished meanwhile"):
        list(second.epochs())
    assert {path.name: path.read_bytes() for path in first.folder.path.iterdir()} == before


def test_a_narrow_network_is_told_by_its_share_of_the_whole_one(tmp_path: Path) -> None:
    recipe = replace(RECIPE, model="resnet20", width=0.5, method="dense", method_fields={}, epochs=1)
    run = Run(recipe, load("digits"), CPU, tmp_path)
    list(run.epochs())
    assert run.summary is not None and run.summary.sparsity == 0
    assert run.summary.flops_ratio == pytest.approx(0.25, abs=0.01)
    assert run.summary.train_flops == pytest.approx(run.summary.flops_ratio)


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_seconds_between_checkpoints_are_a_number(tmp_path: Path, seconds: float) -> None:
    run = Run(Recipe(epochs=1, method="dense", method_fields={}), load("digits"), torch.device("cpu"), tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint_every=.*: must be 0 or more seconds"):
        next(run.epochs(seconds))
    assert not list(tmp_path.iterdir())


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

"""The grids that come with the project: every run in them can be made, and they are the paper's studies."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from granet.data import load
from granet.methods import create_method
from granet.models import create_model
from granet.studies.spec import Spec, read_spec
from granet.training import DENSE, Recipe, Run, Training
from granet.training.rundir import run_name

FOLDER = Path(__file__).parents[2] / "recipes"
SPECS = sorted(path for path in FOLDER.rglob("*.toml") if "[[runs]]" in path.read_text(encoding="utf-8"))
TRAINING_IMAGES = {"digits": 1_086, "cifar10": 45_000, "cifar100": 50_000}


@cache
def study(name: str) -> Spec:
    return read_spec(FOLDER / "studies" / f"{name}.toml")


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_run_can_be_made(path: Path) -> None:
    names: set[str] = set()
    for recipe in read_spec(path).recipes:
        clock = recipe.clock(TRAINING_IMAGES[recipe.data])
        if recipe.method != DENSE:
            method = create_method(recipe.method, **recipe.method_fields)
            assert method.needs_trained == bool(recipe.parent)
            method.updates(clock)  # ValueError for times that make no sense
        assert not recipe.parent or recipe.parent in names, "the run it starts from comes before it"
        names.add(run_name(recipe))


def test_all_studies_are_there() -> None:
    assert {path.stem for path in SPECS if path.parent.name == "studies"} == {
        "digits", "extended-training", "extreme-sparsity", "initial-sparsity", "reinitialisation", "retraining",
        "uniform",
    }  # fmt: skip


def test_reinitialisation_is_from_another_seed() -> None:
    recipes = {run_name(recipe): recipe for recipe in study("reinitialisation").recipes}
    again = [recipe for recipe in recipes.values() if recipe.parent]
    assert len(again) == 2 * 2 * 3 * 3  # data, methods, sparsities, seeds
    for recipe in again:
        first = recipes[recipe.parent]
        assert recipe.seed == first.seed + 100 and recipe.data == first.data
        assert recipe.method_fields["sparsity"] == first.method_fields["sparsity"]
    assert {recipes[recipe.parent].method for recipe in again} == {"granet", "gmp"}


@pytest.mark.slow
def test_a_reinitialised_network_has_the_found_mask_and_the_weights_of_its_own_seed(tmp_path: Path) -> None:
    data = load("digits")
    first = Recipe(epochs=1, method_fields={"sparsity": 0.9, "every": 4})
    run = Run(first, data, torch.device("cpu"), tmp_path)
    list(run.epochs())
    again = Recipe(epochs=1, method="lth", method_fields={"sparsity": 0.9}, seed=100, parent=run.folder.path.name)
    training = Training(again, data, parent=run.folder.path)
    torch.manual_seed(100)
    fresh = create_model("digits_net", num_classes=10, in_channels=1)
    other = Training(replace(again, seed=0), data, parent=run.folder.path)
    for name, mask in training.sparsifier.masks.items():
        assert torch.equal(mask, run.training.sparsifier.masks[name])
        assert torch.equal(training.model.get_parameter(name), fresh.get_parameter(name) * mask)
        assert not torch.equal(training.model.get_parameter(name), other.model.get_parameter(name))

"""Rows of a sweep's table that would look alike are told apart."""

from __future__ import annotations

from dataclasses import replace

from granet.studies.settings import told_apart
from granet.training import Recipe
from granet.training.rundir import run_name

GRANET = Recipe(method_fields={"sparsity": 0.9, "initial_sparsity": 0.0})
HALF = replace(GRANET, method_fields={"sparsity": 0.9, "initial_sparsity": 0.5})


def test_settings_in_which_runs_of_a_method_differ() -> None:
    gmp = replace(GRANET, method="gmp", method_fields={"sparsity": 0.9}, lr=0.2)
    told = told_apart([GRANET, HALF, gmp])
    assert list(told) == [run_name(recipe) for recipe in (GRANET, HALF, gmp)]
    assert list(told.values()) == ["initial_sparsity=0.0", "initial_sparsity=0.5", ""]


def test_what_has_a_column_is_not_told_again() -> None:
    other = replace(GRANET, seed=1, width=0.5, method_fields={"sparsity": 0.95, "initial_sparsity": 0.0})
    elsewhere = replace(GRANET, data="cifar10", model="vgg19", epochs=160)
    assert set(told_apart([GRANET, other, elsewhere]).values()) == {""}


def test_a_parent_is_told_by_its_method_and_settings() -> None:
    def ticket(parent: Recipe) -> Recipe:
        name = run_name(parent)
        return replace(parent, method="lth", method_fields={"sparsity": 0.9}, parent=name)

    dense = replace(GRANET, method="dense", method_fields={})
    runs = [GRANET, HALF, dense, *map(ticket, (GRANET, HALF, dense))]
    told = [told_apart(runs)[run_name(recipe)] for recipe in runs[3:]]
    assert told == ["parent=granet initial_sparsity=0.0", "parent=granet initial_sparsity=0.5", "parent=dense"]
    seeds = [replace(dense, seed=seed) for seed in (0, 1)]
    assert set(told_apart([*seeds, *map(ticket, seeds)]).values()) == {""}  # the same start for all


def test_lists_are_told_as_in_a_file_not_as_in_python() -> None:
    early = replace(GRANET, milestones=("25%", 400))
    assert list(told_apart([GRANET, early]).values()) == ["milestones=[50%, 75%]", "milestones=[25%, 400]"]
    bare = replace(GRANET, exclude=("classifier.*",))
    assert list(told_apart([GRANET, bare]).values()) == ["exclude=[]", "exclude=[classifier.*]"]

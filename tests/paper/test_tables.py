"""The paper's tables and the runs that measure them again."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from granet.methods import create_method, list_methods
from granet.models import create_model
from granet.studies.spec import read_spec
from granet.training.recipe import DENSE
from granet.training.rundir import run_name
from paper.tables import ROWS, STARTS, Cell, cells
from refusals import refused

RECIPES = Path(__file__).parents[2] / "recipes"
CELLS = {table: list(cells(table)) for table in ROWS}


def test_the_tables_are_whole() -> None:
    assert {table: len(found) for table, found in CELLS.items()} == {
        "cifar-main": 124 + 12,
        "zoo": 79,
        "cifar-uniform": 28 + 24,
        "retraining": 52,
        "reinit": 24,
        "beyond": 18,
    }
    printed = {(c.row, c.model, c.data, c.sparsity): (c.accuracy, c.std) for c in CELLS["cifar-main"]}
    assert printed["GraNet (s_i=0.5)", "vgg19", "cifar10", 0.98] == (93.38, 0.15)
    assert printed["GraNet (s_i=0)", "resnet50", "cifar100", 0.9] == (77.29, 0.45)
    assert printed["SNIP", "vgg19", "cifar100", 0.98] == (58.46, None)
    uniform = {(c.row, c.model, c.data, c.sparsity): c for c in CELLS["cifar-uniform"]}
    readings = [cell for cell in uniform.values() if cell.other_reading]
    assert len(readings) == 24
    for cell in readings:
        row, _, reading = cell.row.partition(", ")
        first = uniform[row, cell.model, cell.data, cell.sparsity]
        assert reading == "first layer dense" and cell == replace(first, row=cell.row, other_reading=True)
    assert all(cell.row in ROWS[table] for table, found in CELLS.items() for cell in found)


@pytest.mark.parametrize("table", ROWS)
def test_every_cell_has_its_own_run_with_its_data_model_and_sparsity(table: str) -> None:
    names = []
    for cell in CELLS[table]:
        for seed in (0, 1):
            recipes = cell.recipes(seed)
            known = (cell.model, cell.data, cell.sparsity) in STARTS
            assert bool(recipes) == (cell.row != "STR" or known)
            for recipe in recipes:
                assert (recipe.data, recipe.model.removesuffix("_cifar")) == (cell.data, cell.model)
                other = "reinitialised" in cell.row and recipe.parent
                assert recipe.seed == (seed + 100 if other else seed)
                if recipe.method != DENSE:
                    assert create_method(recipe.method, **recipe.method_fields).sparsity == cell.sparsity
            if len(recipes) > 1:
                assert recipes[-1].parent == run_name(recipes[0])
            names += [run_name(recipe) for recipe in recipes[-1:]]
    assert len(names) == len(set(names))


def test_what_goes_past_the_paper_differs_in_nothing_else() -> None:
    """The recipe of each row against that of GraNet (s_i=0), which is the run of the main table."""
    rows = {cell.row: cell.recipes(0)[0] for cell in CELLS["beyond"] if cell.sparsity in (0, 0.98)}
    plain = rows["GraNet (s_i=0)"].to_dict()
    main = next(c for c in CELLS["cifar-main"] if (c.row, c.data, c.sparsity) == ("GraNet (s_i=0)", "cifar100", 0.98))
    assert (main.model, main.recipes(0)[0].to_dict()) == ("vgg19", plain)

    def differs(row: str) -> dict[str, object]:
        own = rows[row].to_dict()
        fields = own.pop("method_fields").items() - plain["method_fields"].items()
        return {key: value for key, value in own.items() if value != plain[key]} | dict(fields)

    assert differs("+ cosine learning rate") == {"schedule": "cosine"}
    assert differs("+ small, frequent updates") == {"every": 250, "regrow": 0.2}
    assert differs("+ LAMP score") == {"score": "lamp"}
    assert differs("+ cosine and small updates") == {"schedule": "cosine", "every": 250, "regrow": 0.2}
    assert differs("+ all three") == {"schedule": "cosine", "every": 250, "regrow": 0.2, "score": "lamp"}
    assert rows["Dense"].method == DENSE
    cosine = rows["Dense, cosine"].to_dict()
    assert cosine == rows["Dense"].to_dict() | {"schedule": "cosine"}


def test_the_other_reading_of_uniform_pruning_differs_only_in_the_first_layer() -> None:
    recipes = {cell.row: cell.recipes(0)[0].to_dict() for cell in CELLS["cifar-uniform"] if cell.sparsity == 0.98}
    for row in ("GMP", "GraNet (s_i=0)"):
        first, second = recipes[row], recipes[f"{row}, first layer dense"]
        assert second == first | {"method_fields": first["method_fields"] | {"dense_first": True}}


@pytest.mark.parametrize(
    ("reading", "end", "others"),
    [
        ("t_f=110", "68.75%", {}),
        ("float32", "50%", {"precision": "float32"}),
        ("t_f=110 and float32", "68.75%", {"precision": "float32"}),
        ("warm-up", "50%", {"warm_up": "5ep"}),
    ],
)
def test_another_reading_of_a_sparse_start_differs_in_nothing_else(
    reading: str, end: str, others: dict[str, str]
) -> None:
    readings = [cell for cell in CELLS["cifar-main"] if cell.row == f"GraNet (s_i=0.5), {reading}"]
    assert all(cell.other_reading for cell in readings)
    assert [(*cell.place, cell.sparsity) for cell in readings] == [
        ("resnet50", "cifar100", sparsity) for sparsity in (0.9, 0.95, 0.98)
    ]
    for cell in readings:
        first = replace(cell, row="GraNet (s_i=0.5)", other_reading=False)
        assert first in CELLS["cifar-main"]
        own, recipe = (each.recipes(0)[0].to_dict() for each in (cell, first))
        fields = recipe["method_fields"] | {"prune_end": end}
        assert own == recipe | {"method_fields": fields} | others


def test_the_zoo_has_every_method_that_trains_a_network() -> None:
    recipes = [recipe for cell in CELLS["zoo"] for recipe in cell.recipes(0)]
    left_out = {"prune-once", "prune-regrow", "wanda"}  # for trained networks, and no training follows
    assert {recipe.method for recipe in recipes} == {*(info.name for info in list_methods()), DENSE} - left_out
    assert {recipe.total_epochs for recipe in recipes} == {160}
    main = {cell.row: cell for cell in CELLS["cifar-main"] if (cell.model, cell.data) == ("vgg19", "cifar10")}
    for cell in CELLS["zoo"]:
        if cell.row in main and cell.row != "Dense":
            same = next(c for c in CELLS["cifar-main"] if (c.row, c.model, c.data, c.sparsity) == place(cell))
            assert (cell.accuracy, cell.recipes(0)) == (same.accuracy, same.recipes(0))
        elif cell.row != "Dense":
            assert cell.accuracy is None


def place(cell: Cell) -> tuple[str, str, str, float]:
    return cell.row, cell.model, cell.data, cell.sparsity


@pytest.mark.parametrize("sparsity", [0.9, 0.95, 0.98])
def test_small_dense_has_as_few_weights(sparsity: float) -> None:
    where = ("Small-Dense", "vgg19", "cifar10", sparsity)
    (recipe,) = next(cell for cell in CELLS["zoo"] if place(cell) == where).recipes(0)
    with torch.device("meta"):
        small, whole = (create_model(recipe.model, num_classes=10, width=width) for width in (recipe.width, 1.0))
    count = [sum(p.numel() for p in model.parameters() if p.ndim > 1) for model in (small, whole)]
    assert count[0] / count[1] == pytest.approx(1 - sparsity, rel=0.01)


def test_times_of_the_paper() -> None:
    cell = next(c for c in CELLS["retraining"] if c.row == "GraNet_2x (s_i=0)" and c.data == "cifar10")
    (recipe,) = cell.recipes(0)
    clock = recipe.clock(45_000)
    assert (recipe.total_epochs, clock.steps(recipe.method_fields["prune_end"])) == (320, 220 * 351)


@pytest.mark.parametrize(
    ("name", "table", "rows"),
    [
        ("retraining", "retraining", {"GraNet (s_i=0)", "+ Lottery Ticket Hypothesis", "+ Learning Rate Rewinding"}),
        ("extended-training", "retraining", {"GraNet (s_i=0)", "GraNet_2x (s_i=0)"}),
        ("uniform", "cifar-uniform", {"GMP", "GraNet (s_i=0)"}),
        ("uniform", "cifar-main", {"GMP", "GraNet (s_i=0)"}),
        ("reinitialisation", "reinit", set(ROWS["reinit"])),
    ],
)
def test_runs_are_those_of_the_papers_tables(name: str, table: str, rows: set[str]) -> None:
    """So what one command has trained, the other finds done."""
    wanted = {
        run_name(recipe)
        for cell in cells(table)
        if cell.model == "vgg19" and cell.row in rows
        for seed in (0, 1, 2)
        for recipe in cell.recipes(seed)
    }
    assert wanted <= {run_name(recipe) for recipe in read_spec(RECIPES / "studies" / f"{name}.toml").recipes}


def test_an_unknown_table() -> None:
    with refused("table", "imagenet"):
        list(cells("imagenet"))

"""The paper's tables and the runs that measure them again."""

import pytest

from granet.methods import create_method
from granet.studies.tables import ROWS, cells
from granet.training.recipe import DENSE
from granet.training.rundir import run_name

CELLS = {table: list(cells(table)) for table in ROWS}


def test_the_tables_are_whole() -> None:
    assert {table: len(found) for table, found in CELLS.items()} == {
        "cifar-main": 124,
        "cifar-uniform": 28,
        "retraining": 52,
    }
    printed = {(c.row, c.model, c.data, c.sparsity): (c.accuracy, c.std) for c in CELLS["cifar-main"]}
    assert printed["GraNet (s_i=0.5)", "vgg19", "cifar10", 0.98] == (93.38, 0.15)
    assert printed["GraNet (s_i=0)", "resnet50", "cifar100", 0.9] == (77.29, 0.45)
    assert printed["SNIP", "vgg19", "cifar100", 0.98] == (58.46, None)
    assert all(cell.row in ROWS[table] for table, found in CELLS.items() for cell in found)


@pytest.mark.parametrize("table", ROWS)
def test_every_cell_has_its_own_run_with_its_data_model_and_sparsity(table: str) -> None:
    names = []
    for cell in CELLS[table]:
        for seed in (0, 1):
            recipes = cell.recipes(seed)
            assert bool(recipes) == (cell.row != "STR")
            for recipe in recipes:
                assert (recipe.data, recipe.model.removesuffix("_cifar"), recipe.seed) == (cell.data, cell.model, seed)
                if recipe.method != DENSE:
                    assert create_method(recipe.method, **recipe.method_fields).sparsity == cell.sparsity
            if len(recipes) > 1:
                assert recipes[-1].parent == run_name(recipes[0])
            names += [run_name(recipe) for recipe in recipes[-1:]]
    assert len(names) == len(set(names))


def test_times_of_the_paper() -> None:
    cell = next(c for c in CELLS["retraining"] if c.row == "GraNet_2x (s_i=0)" and c.data == "cifar10")
    (recipe,) = cell.recipes(0)
    clock = recipe.clock(45_000)
    assert (recipe.total_epochs, clock.steps(recipe.method_fields["end"])) == (320, 220 * 351)


def test_an_unknown_table() -> None:
    with pytest.raises(ValueError, match=r"table='imagenet': must be one of cifar-main, "):
        list(cells("imagenet"))

"""Means, differences and standard errors against sums written out; pages and README from the files in results/."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from granet.cli.reproduce import Reproduce, with_results
from granet.data import load
from granet.studies.compare import Comparison, compare, read_results, seed_spread
from granet.studies.results_page import headline, page
from granet.studies.tables import ROWS, Cell, cells
from granet.training import Recipe, Run
from granet.training.rundir import run_name

ROOT = Path(__file__).parents[2]
CELL = Cell("cifar-main", "GMP", "vgg19", "cifar10", 0.9, 93.0, 0.3)


def test_difference_and_its_standard_error() -> None:
    one = Comparison(CELL, (93.1, 93.3, 93.8), ())
    assert one.difference == pytest.approx(0.4)
    variance = ((93.1 - 93.4) ** 2 + (93.3 - 93.4) ** 2 + (93.8 - 93.4) ** 2) / 2
    assert one.standard_error(None) == pytest.approx(math.sqrt(variance / 3 + 0.09 / 3))
    single, none = Comparison(CELL, (92.0,), ()), Comparison(CELL, (), ())
    assert single.standard_error(None) is None and none.difference is None
    assert single.standard_error(0.2) == pytest.approx(math.sqrt(0.04 + 0.03))
    assert Comparison(replace(CELL, std=None), (92.0,), ()).standard_error(None) is None


def test_a_cell_that_the_paper_does_not_print() -> None:
    cell = Cell("reinit", "GMP", "vgg19", "cifar10", 0.9)
    several, none = Comparison(cell, (93.0, 94.0), ()), Comparison(cell, (), ())
    assert several.difference is None
    assert several.standard_error(None) == pytest.approx(math.sqrt(0.5 / 2))
    assert "| GMP | 93.50, n=2 ± 0.50 |" in page("reinit", [several])
    assert "| GMP | - |" in page("reinit", [none])
    assert "| GMP | 93.50 |" in headline([several], "vgg19", "cifar10")


def test_the_spread_is_pooled_over_cells_with_several_seeds() -> None:
    several = [Comparison(CELL, last, ()) for last in ((1.0, 2.0, 3.0), (5.0, 7.0), (9.0,))]
    assert seed_spread(several) == pytest.approx(math.sqrt((1.0 * 2 + 2.0 * 1) / 3))
    assert seed_spread(several[2:]) is None


def test_results_find_their_cells() -> None:
    recipe = CELL.recipes(1)[-1]
    results = {run_name(recipe): {"accuracy_last": "93.5", "accuracy_best": ""}}
    (one,) = compare([CELL], results, seeds=(0, 1, 2))
    assert (one.last, one.best) == ((93.5,), ())
    assert "| GMP | 93.50 (93.00) |" in headline([one], "vgg19", "cifar10")
    assert "93.50, n=1 (+0.50)" in page("cifar-main", [one])


def test_every_row_of_the_results_has_its_log_and_belongs_to_a_table() -> None:
    known = {run_name(r) for table in ROWS for cell in cells(table) for seed in range(3) for r in cell.recipes(seed)}
    results = read_results(ROOT / "results")
    assert results
    for name, row in results.items():
        assert name in known
        log = json.loads((ROOT / "results" / "logs" / f"{name}.json").read_text())
        recipe = Recipe.from_dict(log["recipe"])
        assert run_name(recipe) == name and len(log["epochs"]) == recipe.total_epochs
        assert float(row["accuracy_last"]) == pytest.approx(100 * log["epochs"][-1]["test_accuracy"], abs=0.006)
        if recipe.method != "dense":
            assert float(row["sparsity_achieved"]) == pytest.approx(recipe.method_fields["sparsity"], abs=1e-6)


def test_the_readme_and_the_pages_are_what_the_results_give() -> None:
    comparisons = compare(cells("cifar-main"), read_results(ROOT / "results"), (0, 1, 2))
    readme = (ROOT / "README.md").read_text()
    assert with_results(readme, comparisons) == readme
    assert (ROOT / "docs" / "results" / "cifar-main.md").read_text() == page("cifar-main", comparisons)


def test_a_finished_run_is_kept_with_those_of_before(tmp_path: Path) -> None:
    command = Reproduce(table="cifar-main", out=tmp_path / "runs", results=tmp_path / "results")
    for seed in (0, 1, 1):  # the last is there already
        recipe = Recipe(method_fields={"sparsity": 0.9, "every": 1}, epochs=1, batch_size=256, seed=seed)
        list(Run(recipe, load("digits"), torch.device("cpu"), tmp_path / "runs").epochs())
        command._keep(recipe)
    (path,) = (tmp_path / "results").glob("*.csv")
    version = ".".join(torch.__version__.split(".")[:2])
    assert path.name == f"cifar-main-cpu-torch{version}.csv"
    with path.open() as file:
        table = list(csv.DictReader(file))
    assert [row["seed"] for row in table] == ["0", "1"]
    for row in table:
        log = json.loads((tmp_path / "results" / "logs" / f"{row['run']}.json").read_text())
        assert log["summary"]["test_accuracy"] == pytest.approx(float(row["accuracy_last"]) / 100, abs=1e-5)
        assert len(log["epochs"]) == 1 and log["updates"] and log["layers"]
    assert set(read_results(tmp_path / "results")) == {row["run"] for row in table}

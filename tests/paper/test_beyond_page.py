"""The page of what goes past the paper: differences from GraNet as it is, against sums written out."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from granet.training.recipe_file import find_recipe, read_recipe_file
from paper.beyond_page import BEST, PLAIN, RECIPE, page
from paper.compare import Comparison, compare, with_deviations
from paper.results import read_results
from paper.results_figure import against_flops
from paper.tables import Cell, cells

ROOT = Path(__file__).parents[2]

MEASURED = {
    (PLAIN, 0.98): Comparison(
        Cell("beyond", PLAIN, "vgg19", "cifar100", 0.98), (71.0, 72.0), (), (0.08, 0.09), (0.3, 0.32)
    ),
    ("+ LAMP score", 0.98): Comparison(
        Cell("beyond", "+ LAMP score", "vgg19", "cifar100", 0.98), (72.0, 74.0), (), (0.06, 0.07), (0.2, 0.3)
    ),
    ("+ all three", 0.98): Comparison(Cell("beyond", "+ all three", "vgg19", "cifar100", 0.98), (), ()),
    ("Dense", 0): Comparison(Cell("beyond", "Dense", "vgg19", "cifar100", 0), (73.0,), (), (1.0,), (1.0,)),
}


def test_every_row_is_compared_with_plain_granet() -> None:
    text = page("beyond", with_deviations(list(MEASURED.values()), list(MEASURED.values())))
    spread = math.sqrt((0.5 + 2) / 2)
    plain = lamp = spread / math.sqrt(2)
    assert "## VGG-19 on CIFAR-100, 98%" in text and text.count("\n## ") == 1
    assert f"| {PLAIN} | 71.50 ± {plain:.2f}, n=2 |  | 0.085 | 0.310 |" in text
    assert f"| + LAMP score | 73.00 ± {lamp:.2f}, n=2 | +1.50 ± {math.hypot(plain, lamp):.2f} | 0.065 | 0.250 |" in text
    assert f"| Dense | 73.00 ± {spread:.2f}, n=1 | +1.50 ± {math.hypot(plain, spread):.2f} | 1.000 | 1.000 |" in text
    assert "| + all three | - | - | - | - |" in text


def test_without_a_deviation_there_is_no_standard_error() -> None:
    single = [
        replace(one, last=one.last[:1], test_flops=one.test_flops[:1], train_flops=one.train_flops[:1])
        for one in MEASURED.values()
    ]
    assert "| + LAMP score | 72.00, n=1 | +1.00 | 0.060 | 0.200 |" in page("beyond", single)


@pytest.mark.slow
def test_the_best_is_the_recipe_of_that_name() -> None:
    at_98 = [cell for cell in cells("beyond") if cell.sparsity == 0.98]
    measured = [one for one in compare(at_98, read_results(ROOT / "results"), (0, 1, 2)) if one.last]
    best = max(measured, key=lambda one: statistics.mean(one.last))
    assert (best.cell.row, len(best.last)) == (BEST, 3)
    recipe = read_recipe_file(find_recipe(RECIPE)).recipe()
    sparse = replace(recipe, method_fields={**recipe.method_fields, "sparsity": 0.98})
    assert [sparse] == best.cell.recipes(0)


def test_the_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    against_flops(list(MEASURED.values()), tmp_path / "beyond.png")
    assert (tmp_path / "beyond.png").read_bytes().startswith(b"\x89PNG")

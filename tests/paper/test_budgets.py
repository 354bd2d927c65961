"""Layer budgets: printed, by formula, and from the logs of runs; against sums written out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from granet.training.rundir import run_name
from paper.budget_table import BudgetTable, budget_table, learning_cells, page
from paper.budgets import (
    PRINTED,
    Budget,
    counted,
    fixed_budgets,
    learned_budget,
    printed_budgets,
    printed_rows,
    resnet50,
)
from paper.reproducible import Selection
from paper.tables import Cell
from refusals import refused

CELL = Cell("cifar-main", "GMP", "vgg19", "cifar10", 0.9)


def write_log(results: Path, seed: int, active: list[int], new: bool) -> None:
    """What a run logs of its layers: today their counts at the end, once only those of the updates."""
    names = [str(row.parameter) for row in counted("vgg19", 10, 32).rows]
    log = {"layers": [{"name": name} for name in names], "updates": [{"active": [0] * len(names)}, {"active": active}]}
    if new:
        log = {"layers": [{"name": n, "active": a} for n, a in zip(names, active, strict=True)], "updates": []}
    (results / "logs").mkdir(exist_ok=True)
    (results / "logs" / f"{run_name(CELL.recipes(seed)[-1])}.json").write_text(json.dumps(log))


@pytest.mark.parametrize("column", PRINTED)
def test_the_printed_totals_follow_from_the_printed_layers(column: str) -> None:
    overall, backbone = printed_rows()[:2]
    budget = printed_budgets()[column]
    assert 100 * budget.sparsity() == pytest.approx(float(overall[column]), abs=0.02)  # layers have two digits or three
    assert 100 * budget.sparsity("fc") == pytest.approx(float(backbone[column]), abs=0.02)
    assert len(budget.percents) == 54 and budget.percents[0] == printed_rows()[2][column]


def test_our_erk_is_the_printed_one() -> None:
    """To the whole percents that the paper gives."""
    report = resnet50()
    erk, uniform = fixed_budgets(report, 2_550_291)
    assert (erk.name, uniform.name) == ("ERK", "uniform")
    assert sum(erk.active[0]) == sum(uniform.active[0]) == 2_550_291
    for ours, printed in zip(erk.percents, printed_budgets()["erk"].percents, strict=True):
        assert float(ours) == pytest.approx(float(printed), abs=0.51)
    assert round(erk.flops, 3) == 0.242 and round(uniform.flops, 3) == 0.100


def test_a_budget_is_the_mean_over_its_runs() -> None:
    report = counted("vgg19", 10, 32)
    full = tuple(row.weights for row in report.rows)
    half = tuple(weights // 2 for weights in full)
    budget = Budget("x", report, (full, half, full))
    assert budget.percents[0] == "16.67" and budget.sparsity() == pytest.approx(1 / 6)
    assert budget.sparsity("classifier") == pytest.approx(1 / 6) and budget.flops == pytest.approx(5 / 6)


def test_old_and_new_logs(tmp_path: Path) -> None:
    assert learned_budget(CELL, (0, 1, 2), tmp_path) is None
    weights = [row.weights for row in counted("vgg19", 10, 32).rows]
    first, second = [size // 10 for size in weights], [size // 5 for size in weights]
    write_log(tmp_path, 0, first, new=False)
    write_log(tmp_path, 2, second, new=True)
    budget = learned_budget(CELL, (0, 1, 2), tmp_path)
    assert budget is not None and budget.active == (tuple(first), tuple(second))
    text = page(tmp_path, (0, 1, 2))
    assert "## VGG-19 on CIFAR-10, 90%" in text and "GMP, n=2 | ERK | uniform |" in text
    assert "| features.3 | 36,864 | 0.095 | 85.00 |" in text
    assert text.count("\n## ") == 2  # ResNet-50, and what there are logs of


@pytest.mark.parametrize("count", ["x", -5, 10**9, None])
def test_a_log_with_counts_that_cannot_be_is_named(tmp_path: Path, count: Any) -> None:
    weights = [row.weights for row in counted("vgg19", 10, 32).rows]
    write_log(tmp_path, 0, [count, *weights[1:]], new=True)
    with pytest.raises(ValueError, match=r"seed0.*\.json.*active=.* must be from 0 to its 1728 weights"):
        learned_budget(CELL, (0,), tmp_path)


def test_which_budgets_are_learned() -> None:
    rows = {cell.row for cell in learning_cells()}
    assert {"GMP", "GraNet (s_i=0)", "SNIP", "+ LAMP score"} <= rows and not rows & {"RigL", "SET", "Deep-R", "Dense"}


@pytest.mark.slow
def test_every_cell_is_listed_and_nothing_is_trained(tmp_path: Path) -> None:
    report = counted("vgg19", 10, 32)
    (uniform,) = (budget for budget in fixed_budgets(report, 2_000_000) if budget.name == "uniform")
    write_log(tmp_path, 0, list(uniform.active[0]), new=True)
    table = BudgetTable()
    assert table.missing((), tmp_path) == []
    lines = list(table.lines(tmp_path))
    assert len(lines) == len(PRINTED) + len(learning_cells())
    (learned,) = (line for line in lines if "1 of 3 seeds" in line)
    assert learned.endswith(f"FLOPs {uniform.flops:.3f}")
    assert budget_table(Selection(seeds=(4, 5))).seeds == (4, 5)
    with refused("models", ("vgg19",)):
        budget_table(Selection(models=("vgg19",)))

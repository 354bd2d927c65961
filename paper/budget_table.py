"""Layer budgets as a table to reproduce: the paper's recounted, and those that our own runs learned."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from granet.cli.markdown import markdown_table
from granet.distributions import kept
from granet.methods import list_methods
from granet.training.recipe import Recipe
from paper.accuracy_table import SEEDS
from paper.budgets import (
    Budget,
    fixed_budgets,
    learned_budget,
    percent,
    printed_budgets,
    printed_rows,
    resnet50,
)
from paper.prose import prose
from paper.reproducible import PAGES, Selection, write_page
from paper.tables import Cell, cells
from paper.wording import NAMES, heading

NAME = "budgets"
SPARSITY = 0.9
"""Of the paper's table."""


@dataclass(frozen=True)
class BudgetTable:
    """Nothing is trained for it: its runs are those of other tables."""

    seeds: tuple[int, ...] = SEEDS

    def missing(self, done: Collection[str], out: Path) -> list[Recipe]:
        return []

    def keep(self, recipe: Recipe, out: Path, results: Path) -> None:
        raise ValueError(f"table={NAME!r}: has no runs of its own")

    def lines(self, results: Path) -> Iterator[str]:
        overall = printed_rows()[0]
        for column, budget in printed_budgets().items():
            what = f"{'ResNet-50':<10}{'ImageNet':<10}{budget.name:<30}{SPARSITY:<5.0%}"
            ours = f"paper {overall[column]}  ours {percent(budget.sparsity())}  FLOPs {budget.flops:.3f}"
            yield f"{what}{'recounted':<14}{ours}"
        for cell in learning_cells():
            learned = learned_budget(cell, self.seeds, results)
            what = f"{NAMES[cell.model]:<10}{NAMES[cell.data]:<10}{cell.row:<30}{cell.sparsity:<5.0%}"
            state = f"{len(learned.active) if learned else 0} of {len(self.seeds)} seeds"
            yield f"{what}{state:<14}FLOPs {f'{learned.flops:.3f}' if learned else '-'}"

    def write(self, results: Path, root: Path) -> Iterator[Path]:
        yield write_page(root / PAGES / f"{NAME}.md", page(results, self.seeds))


def budget_table(selection: Selection) -> BudgetTable:
    """The whole table, from the runs of some seeds."""
    selection.allow(NAME, "seeds")
    return BudgetTable(selection.seeds or SEEDS)


def learning_cells() -> list[Cell]:
    """The VGG-19 cells whose method learns how layers share the weights, each run once."""
    by_formula = {info.name for info in list_methods() if info.distribution in ("uniform", "ER", "ERK")}
    found: dict[Recipe, Cell] = {}
    for cell in (*cells("cifar-main"), *cells("beyond")):
        recipes = cell.recipes(0)
        if cell.model == "vgg19" and cell.sparsity > 0 and recipes and recipes[-1].method not in by_formula:
            found.setdefault(recipes[-1], cell)
    return list(found.values())


def page(results: Path, seeds: Sequence[int]) -> str:
    """The whole page."""
    report = resnet50()
    ours = fixed_budgets(report, kept(sum(row.weights for row in report.rows), SPARSITY))
    printed = printed_budgets()
    named = {f"our {budget.name}": budget for budget in ours}
    parts = [heading(NAME), prose("budgets"), prose("budgets-printed"), markdown_table(_totals(printed, named))]
    parts.append(markdown_table(_layers({budget.name: budget for budget in printed.values()} | named)))
    learned: dict[tuple[str, str, float], dict[str, Budget]] = {}
    for cell in learning_cells():
        budget = learned_budget(cell, seeds, results)
        if budget is not None:
            column = f"{cell.row}, n={len(budget.active)}"
            learned.setdefault((cell.model, cell.data, cell.sparsity), {})[column] = budget
    for place, ((model, data, sparsity), found) in enumerate(sorted(learned.items())):
        parts.append(f"## {NAMES[model]} on {NAMES[data]}, {sparsity:.0%}\n")
        parts += [prose("budgets-learned")] if place == 0 else []
        first = next(iter(found.values()))
        fixed = fixed_budgets(first.report, sum(first.active[0]))
        parts.append(markdown_table(_layers(found | {budget.name: budget for budget in fixed})))
    return "\n".join(parts)


Rows = list[tuple[str, ...]]


def _totals(printed: dict[str, Budget], ours: dict[str, Budget]) -> Rows:
    overall, backbone = printed_rows()[:2]
    rows: Rows = [("budget", "sparsity, printed", "recounted", "backbone, printed", "recounted", "FLOPs")]
    for column, budget in printed.items():
        rows.append((budget.name, overall[column], percent(budget.sparsity()), backbone[column], *_ends(budget)))
    for name, budget in ours.items():
        rows.append((name, "", percent(budget.sparsity()), "", *_ends(budget)))
    return rows


def _ends(budget: Budget) -> tuple[str, str]:
    return percent(budget.sparsity("fc")), f"{budget.flops:.3f}"


def _layers(budgets: dict[str, Budget]) -> Rows:
    report = next(iter(budgets.values())).report
    rows: Rows = [("layer", "weights", "FLOPs of all", *budgets)]
    columns = [budget.percents for budget in budgets.values()]
    for row, *percents in zip(report.rows, *columns, strict=True):
        rows.append((row.name, f"{row.weights:,}", f"{row.dense / report.dense:.3f}", *percents))
    weights = sum(row.weights for row in report.rows)
    rows.append(("all layers", f"{weights:,}", "", *(percent(budget.sparsity()) for budget in budgets.values())))
    rows.append(("FLOPs left", "", "1.000", *(f"{budget.flops:.3f}" for budget in budgets.values())))
    return rows

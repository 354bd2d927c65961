"""Everything that `python -m paper` knows how to measure, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from paper import beyond_page, results_page, zoo_page
from paper.accuracy_table import AccuracyTable
from paper.budget_table import budget_table
from paper.front_figure import front_figure
from paper.plasticity_table import plasticity_table
from paper.reproducible import Selection, Table
from paper.results_figure import against_flops, against_sparsity

Name = Literal["cifar-main", "zoo", "cifar-uniform", "retraining", "reinit", "beyond", "plasticity", "budgets"]

FULL = "-full"
"""Behind the name of the figure that has every row, where another is on the front page."""

TABLES: Mapping[Name, Callable[[Selection], Table]] = {
    "cifar-main": partial(
        AccuracyTable,
        "cifar-main",
        page=partial(results_page.page, picture=f"cifar-main{FULL}"),
        figures={"": front_figure, FULL: against_sparsity},
        readme=True,
    ),
    "zoo": partial(AccuracyTable, "zoo", page=zoo_page.page, figures={}, default_seeds=(0,)),
    "cifar-uniform": partial(AccuracyTable, "cifar-uniform"),
    "retraining": partial(AccuracyTable, "retraining"),
    "reinit": partial(AccuracyTable, "reinit"),
    "beyond": partial(AccuracyTable, "beyond", page=beyond_page.page, figures={"": against_flops}),
    "plasticity": plasticity_table,
    "budgets": budget_table,
}

"""Everything that `python -m paper` knows how to measure, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from paper import beyond_page, zoo_page
from paper.accuracy_table import AccuracyTable
from paper.budget_table import budget_table
from paper.plasticity_table import plasticity_table
from paper.reproducible import Selection, Table
from paper.results_figure import against_flops

Name = Literal["cifar-main", "zoo", "cifar-uniform", "retraining", "reinit", "beyond", "plasticity", "budgets"]

TABLES: Mapping[Name, Callable[[Selection], Table]] = {
    "cifar-main": partial(AccuracyTable, "cifar-main", readme=True),
    "zoo": partial(AccuracyTable, "zoo", page=zoo_page.page, figure=None, default_seeds=(0,)),
    "cifar-uniform": partial(AccuracyTable, "cifar-uniform"),
    "retraining": partial(AccuracyTable, "retraining"),
    "reinit": partial(AccuracyTable, "reinit"),
    "beyond": partial(AccuracyTable, "beyond", page=beyond_page.page, figure=against_flops),
    "plasticity": plasticity_table,
    "budgets": budget_table,
}

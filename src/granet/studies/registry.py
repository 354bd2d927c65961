"""Everything that `granet reproduce` knows how to measure, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from granet.studies import beyond_page, zoo_page
from granet.studies.accuracy_table import AccuracyTable
from granet.studies.budget_table import budget_table
from granet.studies.plasticity_table import plasticity_table
from granet.studies.reproducible import Selection, Table
from granet.studies.results_figure import against_flops

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

"""Everything that `granet reproduce` knows how to measure, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from granet.studies.accuracy_table import AccuracyTable, beyond, main_table, zoo
from granet.studies.budget_table import budget_table
from granet.studies.plasticity_table import plasticity_table
from granet.studies.reproducible import Selection, Table

Name = Literal["cifar-main", "zoo", "cifar-uniform", "retraining", "reinit", "beyond", "plasticity", "budgets"]

TABLES: Mapping[Name, Callable[[Selection], Table]] = {
    "cifar-main": main_table,
    "zoo": zoo,
    "cifar-uniform": partial(AccuracyTable, "cifar-uniform"),
    "retraining": partial(AccuracyTable, "retraining"),
    "reinit": partial(AccuracyTable, "reinit"),
    "beyond": beyond,
    "plasticity": plasticity_table,
    "budgets": budget_table,
}

"""The paper's tables: what is printed in each cell, and the run that measures it again."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from granet.studies.spec import grid_point
from granet.training.recipe import Recipe
from granet.training.recipe_file import RecipeFile, find_recipe, read_recipe_file

FROM_DENSE = {"method": "granet", "initial_sparsity": 0.0, "end": "68.75%"}
"""GraNet (s_i = 0) prunes until epoch 110 of 160."""

ROWS: Mapping[str, Mapping[str, dict[str, Any] | None]] = {
    "cifar-main": {
        "Dense": {"method": "dense"},
        "SNIP": {"method": "snip"},
        "GraSP": {"method": "grasp"},
        "SynFlow": {"method": "synflow"},
        "Deep-R": {"method": "deep-r"},
        "SET": {"method": "set"},
        "RigL": {"method": "rigl-itop"},  # what the paper ran under that name
        "GraNet (s_i=0.5)": {"method": "granet", "initial_sparsity": 0.5, "end": "50%"},
        "STR": None,  # has no target: which start of its thresholds leads to these sparsities is not known yet
        "SIS": {"method": "sis", "parent": {"method": "dense"}},
        "GMP": {"method": "gmp"},
        "GraNet (s_i=0)": FROM_DENSE,
    },
    "cifar-uniform": {
        "Dense": {"method": "dense"},
        "GMP": {"method": "gmp", "scope": "uniform"},
        "GraNet (s_i=0)": {**FROM_DENSE, "scope": "uniform"},
    },
    "retraining": {
        "Dense": {"method": "dense"},
        "GraNet (s_i=0)": FROM_DENSE,
        "+ Lottery Ticket Hypothesis": {"method": "lth", "parent": FROM_DENSE},
        "+ Learning Rate Rewinding": {"method": "lrr", "parent": FROM_DENSE},
        "GraNet_2x (s_i=0)": {**FROM_DENSE, "stretch": 2.0},
    },
}
"""For each row of a table the settings of its runs, beside those of the recipe of its data and model."""


@dataclass(frozen=True)
class Cell:
    """One number of a table: the mean over three seeds of the best test accuracy after pruning ended, in percent."""

    table: str
    row: str
    model: str
    data: str
    sparsity: float
    accuracy: float
    std: float | None
    """Deviation over the seeds, where the paper prints it."""

    def recipes(self, seed: int) -> list[Recipe]:
        """The run that measures it, after the runs that this one starts from; none if it is not known how."""
        settings = ROWS[self.table][self.row]
        if settings is None:
            return []
        shared = {"sparsity": self.sparsity, "seed": seed}
        return grid_point(_recipe_file(f"{self.data}-{self.model}"), shared, settings)


def cells(table: str) -> Iterator[Cell]:
    """All cells of a table, in the order of the paper."""
    if table not in ROWS:
        raise ValueError(f"table={table!r}: must be one of {', '.join(ROWS)}")
    text = (files("granet.studies") / "paper" / f"{table}.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        std = float(row["std"]) if row["std"] else None
        name, model, data = row["row"], row["model"], row["data"]
        yield Cell(table, name, model, data, float(row["sparsity"]), float(row["accuracy"]), std)


@cache
def _recipe_file(name: str) -> RecipeFile:
    return read_recipe_file(find_recipe(name))

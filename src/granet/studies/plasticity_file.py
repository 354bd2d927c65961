"""A plasticity study as a TOML file.

recipe = "cifar10-resnet20"              # one that comes with granet, or a path from this file's folder; without
                                         # it, the embedded digits
packed = 3                               # runs at once
checkpoints = [10, 30, 50, 70, 90, 110]  # fields of `Study`
sparsities = [0.0, 0.5, 0.9, 0.98]
continue_epochs = 30
epochs = 160                             # fields of a recipe, for all runs
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from granet.files import read_toml
from granet.methods import former_names
from granet.studies.plasticity import Study
from granet.studies.spec import runs_at_once
from granet.training.recipe import Recipe
from granet.training.recipe_file import RECIPE_KEYS, check_known, read_recipe_file, recipe_path

_STUDY = {field.name for field in dataclasses.fields(Study)} - {"recipe"}
_SET_BY_STUDY = {"method", "parent", "seed", "keep", "branch_epoch", "hold"}
_RECIPE = RECIPE_KEYS - _SET_BY_STUDY
_LISTS = _STUDY - {"continue_epochs", "pattern"}


def read_study(path: Path) -> tuple[Study, int | None]:
    """The study in a file, and its number of runs at once; ValueError names the file, the key and what is allowed."""
    table = read_toml(path, "spec")
    try:
        return _study(path, table), runs_at_once(table.get("packed"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _study(path: Path, table: dict[str, Any]) -> Study:
    table = former_names.renamed(former_names.STUDY, table)
    known = _STUDY | _RECIPE | {"recipe", "packed"}
    for key in table:
        if key in _SET_BY_STUDY:
            raise ValueError(
                f"{key}={table[key]!r}: a study sets it itself; its fields are {', '.join(sorted(_STUDY))}"
            )
        check_known(key, known)
    base = table.get("recipe")
    if base is not None and not isinstance(base, str):
        raise ValueError(f"recipe={base!r}: must be the name of a recipe file")
    shared = (Recipe() if base is None else read_recipe_file(recipe_path(base, path.parent)).shared).dense_twin()
    asked = {key: value for key, value in table.items() if key in _RECIPE}
    for key in _LISTS & set(table):
        if not isinstance(table[key], list):
            raise ValueError(f"{key}={table[key]!r}: must be a list")
    if "checkpoints" not in table:
        raise ValueError("checkpoints: must be a list of epochs after which to prune")
    own: dict[str, Any] = {key: tuple(table[key]) if key in _LISTS else table[key] for key in _STUDY & set(table)}
    return Study(Recipe.from_dict({**shared.to_dict(), **asked}), **own)

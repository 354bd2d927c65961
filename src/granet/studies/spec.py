"""A grid of runs as a TOML file.

recipe = "cifar10-vgg19"         # one that comes with granet, or a path from this file's folder, or a list of such;
                                 # without it, the embedded digits
packed = 3                       # runs at once
seed = [0, 1, 2]                 # any field of a recipe or a method; what is in a list is tried one after the other
sparsity = [0.9, 0.95, 0.98]

[[runs]]
method = ["granet", "gmp"]

[[runs]]
method = "granet"
initial_sparsity = 0.0
prune_end = "68.75%"

[[runs]]
method = "lth"
parent = { method = "dense" }    # a run to start from: what holds for all runs, the same seed, and these keys

A key above the first [[runs]] holds for all runs; methods without such a field ignore it. A key inside [[runs]] must
fit. A key that both the recipe and the method have, such as the momentum of snfs, must be set in a recipe file.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granet.files import read_toml
from granet.methods import create_method, former_names, list_methods
from granet.training.recipe import Recipe, check_parent, method_class, takes_parent
from granet.training.recipe_file import (
    RECIPE_KEYS,
    RecipeFile,
    check_known,
    nearest,
    read_recipe_file,
    recipe_path,
    table_of,
)
from granet.training.rundir import run_name

_LISTS = {name for name in RECIPE_KEYS if isinstance(getattr(Recipe(), name), tuple)}


@dataclass(frozen=True)
class Spec:
    """The runs of a file, each once, in the order they are written."""

    recipes: tuple[Recipe, ...]
    packed: int | None = None


def read_spec(path: Path) -> Spec:
    """The grid in a TOML file; ValueError that names the file, the key and what is allowed."""
    table = read_toml(path, "spec")
    files = _recipe_files(path, table.pop("recipe", None))
    runs = table.pop("runs", [{}])
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise ValueError(f"{path}: runs={runs!r}: must be tables, each begun by [[runs]]")
    recipes: dict[Recipe, None] = {}
    try:
        packed = runs_at_once(table.pop("packed", None))
        tables = [table, *runs]
        for part in tables:  # a parent may have one of its own
            tables += (parent for parent in _choices("parent", part.get("parent")) if isinstance(parent, dict))
        named = [_choices("method", part["method"]) for part in tables if "method" in part]
        for name in itertools.chain(*named):
            method_class(name)  # imports one of the user's own, so that its fields are known in every part of the grid
        for file, run in itertools.product(files, runs):
            for shared in _grid(table):
                for own in _grid(run):
                    recipes |= dict.fromkeys(grid_point(file, shared, own))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Spec(tuple(recipes), packed)


def runs_at_once(packed: object) -> int | None:
    """What a file says under ``packed``, if it says anything."""
    if packed is not None and (type(packed) is not int or packed < 1):
        raise ValueError(f"packed={packed!r}: must be a number of runs, 1 or more")
    return packed


def _recipe_files(path: Path, base: object) -> list[RecipeFile]:
    """What the runs of a grid share: the recipe files it names, or the defaults for the embedded digits."""
    if base is None:
        return [RecipeFile(Recipe())]
    names = base if isinstance(base, list) else [base]
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: recipe={base!r}: must be the name of a recipe file, or a list of names")
    return [read_recipe_file(recipe_path(str(name), path.parent)) for name in names]


def _grid(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every choice of one value for each key."""
    for values in itertools.product(*(_choices(key, value) for key, value in table.items())):
        yield dict(zip(table, values, strict=True))


def _choices(key: str, value: Any) -> list[Any]:
    """The values to try for a key; for a field that is itself a list, a list of lists."""
    if value == [] and key not in _LISTS:
        raise ValueError(f"{key}=[]: must have one value or more to try")
    several = isinstance(value, list)
    if key in _LISTS:
        several = several and bool(value) and all(isinstance(item, list) for item in value)
    return value if several else [value]


def grid_point(file: RecipeFile, shared: Mapping[str, Any], own: Mapping[str, Any]) -> list[Recipe]:
    """The recipe of one point of the grid, after those that it starts from."""
    values = {"method": file.shared.method, "branch_epoch": file.shared.branch_epoch, **shared, **own}
    others = {key: value for key, value in shared.items() if key != "parent"}
    if not takes_parent(values["method"], values["branch_epoch"]):
        shared = others  # a parent is ignored, as any field that the method does not have
    parent = {**shared, **own}.get("parent")
    if not isinstance(parent, dict):
        return [_recipe(file, shared, own)]
    for key, value in parent.items():
        if len(_choices(key, value)) > 1:
            raise ValueError(f"parent={parent!r}: must have one value of {key!r}, a run starts from one other")
    (first_run,) = _grid(parent)
    seed = {"seed": own["seed"]} if "seed" in own else {}
    earlier = grid_point(file, others, {"branch_epoch": 0, "hold": 0, **seed, **first_run})  # in full by default
    first = earlier[-1]
    recipe = _recipe(file, shared, {**own, "parent": run_name(first)})
    if recipe.branch_epoch and recipe.branch_epoch not in first.keep:  # found now, not when the parent is trained
        raise ValueError(f"parent={parent!r}: must keep=[{recipe.branch_epoch}], the epoch that a run branches from")
    return [*earlier, recipe]


def _recipe(file: RecipeFile, shared: Mapping[str, Any], own: Mapping[str, Any]) -> Recipe:
    """The recipe of one point of the grid."""
    method = own.get("method", shared.get("method"))
    recipe = file.recipe(method, own.get("branch_epoch", shared.get("branch_epoch")))
    cls = method_class(recipe.method)
    shared, own = former_names.present(cls, shared), former_names.present(cls, own)
    fields = {field.name for field in dataclasses.fields(cls)} if cls else set()
    known = fields | RECIPE_KEYS
    for key in own:
        if key not in known:
            raise ValueError(f"unknown key {key!r} for {recipe.method}; the nearest is {nearest(key, known)!r}")
    anything = (
        known | former_names.ALL | {item.name for info in list_methods() for item in dataclasses.fields(info.cls)}
    )
    for key in shared:
        check_known(key, anything)
    values = {**shared, **own}
    if both := sorted(values.keys() & fields & RECIPE_KEYS):  # momentum, of SGD and of snfs
        key = both[0]
        raise ValueError(
            f"{key}={values[key]!r}: the recipe and {recipe.method} both have such a field; set it in a recipe file, "
            f"at the top or under {table_of(recipe.method)}"
        )
    asked = {key: value for key, value in values.items() if key in RECIPE_KEYS}
    method_fields = {**recipe.method_fields, **{key: value for key, value in values.items() if key in fields}}
    made = Recipe.from_dict({**recipe.to_dict(), **asked, "method_fields": method_fields})
    if cls is not None:
        create_method(made.method, **method_fields)  # a wrong value is found before anything runs
        if cls.needs_trained and not made.parent:
            raise ValueError(f"parent='': {made.method} starts from a finished run, so it must be given")
    check_parent(made)
    return made

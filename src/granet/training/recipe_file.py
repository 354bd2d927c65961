"""Recipes as TOML files.

model = "vgg19"                # fields of Recipe
epochs = 160
method = "granet"              # the default; --method takes another

[methods.granet]               # that method's own fields
initial_sparsity = 0.5
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from granet.files import read_toml
from granet.methods import create_method, former_names, list_methods
from granet.methods.base import Method
from granet.methods.registry import fields_without_default, find_method
from granet.training.recipe import Recipe, check_type, method_class, takes_parent

RECIPE_KEYS = {item.name for item in dataclasses.fields(Recipe)} - {"method_fields"}
"""Fields of a recipe that files of recipes, grids and studies may set."""
_FOLDERS = (Path(__file__).parents[1] / "recipes", Path(__file__).parents[3] / "recipes")  # installed, in a checkout
_MOST = math.nextafter(1, 0)  # the largest sparsity, so that no field is refused for being above it


@dataclass(frozen=True)
class RecipeFile:
    """A recipe for every method: what they share, and the fields of each."""

    shared: Recipe
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def recipe(self, method: str | None = None, branch_epoch: int | None = None) -> Recipe:
        """The recipe of one method, or of the file's own.

        The file's parent is that of its own method: another one, or a branch after ``branch_epoch`` (by default the
        file's), has it only if it starts from a run too.
        """
        own = self.shared
        method = method or own.method
        branch_epoch = own.branch_epoch if branch_epoch is None else branch_epoch
        starts_from_one = takes_parent(method, branch_epoch)
        parent = own.parent if method == own.method or starts_from_one else ""
        whole: dict[str, Any] = {} if branch_epoch else {"branch_epoch": 0, "hold": 0}  # whatever the file says
        fields = self.methods.get(method, {})
        return dataclasses.replace(own, method=method, method_fields=fields, parent=parent, **whole)


def find_recipe(name: str) -> Path:
    """The file of a recipe that comes with the project, such as ``cifar10-vgg19``."""
    for folder in _FOLDERS:
        if os.path.isfile(path := folder / f"{name}.toml"):
            return path
    raise ValueError(f"recipe={name!r}: must be one that comes with granet")


def recipe_path(name: str | Path, folder: Path = Path(), field: str = "recipe") -> Path:
    """The user's own file of that name, or else the recipe of that name that comes with the project.

    If there is neither, a path is returned as it is, and its reader reports what is wrong; a bare name is refused here,
    with the nearest recipe that comes with the project. ``field`` is what it was given as.
    """
    own = folder / name
    if os.path.exists(own):  # unlike the methods of a path it raises nothing, whatever the name
        return own
    try:
        return find_recipe(str(name).removesuffix(".toml"))
    except ValueError:
        _check_path(Path(name), own, field)
        return own


def _check_path(name: Path, own: Path, field: str) -> None:
    """ValueError for what cannot be read at ``own``, if its name is like those that come with the project.

    `uniform` means `studies/uniform` too. Any other path is left to whoever reads it.
    """
    ours = [path.relative_to(folder).with_suffix("") for folder in _FOLDERS for path in sorted(folder.rglob("*.toml"))]
    if name.suffix or name.parent not in {Path(), *(one.parent for one in ours)}:
        return
    meant = {one.name: one for one in ours} | {one.as_posix(): one for one in ours}
    near = get_close_matches(name.as_posix(), meant, n=1)
    told = f"; the nearest is {meant[near[0]].as_posix()!r}" if near else ""
    try:
        read_toml(own, field)
    except ValueError as error:
        raise ValueError(f"{error}, or the name of a recipe that comes with granet{told}") from error


def read_recipe_file(path: Path) -> RecipeFile:
    """The recipes in a TOML file; ValueError that names the file, the key and what is allowed."""
    table = read_toml(path, "recipe")
    try:
        return _recipe_file(table)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _recipe_file(table: dict[str, Any]) -> RecipeFile:
    methods = table.pop("methods", {})
    _check_table("methods", methods)
    method = table.get("method", Recipe.method)
    check_type("method", method)
    for name in (method, *methods):
        if ":" in name:
            find_method(name)  # imports one of the user's own, so that its fields are known
    classes = {info.name: info.cls for info in list_methods()}
    own = {item.name for item in dataclasses.fields(classes[method])} if method in classes else set()
    for key in table:
        if key in own - RECIPE_KEYS:
            raise ValueError(f"unknown key {key!r}; as a field of {method} it stands under {table_of(method)}")
        check_known(key, {*RECIPE_KEYS, "methods"})
    for name, fields in methods.items():
        if name not in classes:
            raise ValueError(
                f"unknown key 'methods.{name}'; the nearest is 'methods.{nearest(name, classes)}'; one of your own is "
                "written [methods.'package.module:Class']"
            )
        _check_table(f"methods.{name}", fields)
        methods[name] = former_names.present(classes[name], fields)
        allowed = [f"methods.{name}.{item.name}" for item in dataclasses.fields(classes[name])]
        for key in methods[name]:
            check_known(f"methods.{name}.{key}", allowed)
    for name, fields in methods.items():
        _check_fields(name, fields, classes[name])
    shared = Recipe.from_dict({"method_fields": {}, **table})
    method_class(shared.method)
    return RecipeFile(shared, methods)


def table_of(method: str) -> str:
    """How a file begins the table of a method's fields; TOML wants quotes around any name but a plain one.

    >>> table_of("mine:Mine")
    "[methods.'mine:Mine']"
    """
    return f"[methods.{method}]" if re.fullmatch(r"[A-Za-z0-9_-]+", method) else f"[methods.'{method}']"


def nearest(key: str, known: Iterable[str]) -> str:
    """Which of the known keys was meant, most likely."""
    return get_close_matches(key, sorted(known), n=1, cutoff=0)[0]


def check_known(key: str, known: Iterable[str]) -> None:
    """ValueError for a key that a file may not have."""
    if key not in known:
        raise ValueError(f"unknown key {key!r}; the nearest is {nearest(key, known)!r}")


def _check_fields(name: str, fields: Mapping[str, Any], cls: type[Method]) -> None:
    """Find values that are wrong in themselves. A file may lack the sparsity: an option or a grid can give it.

    The same holds for other fields without a default, but nothing is known that would do in their place.
    """
    lacking = set(fields_without_default(cls)) - set(fields)
    if lacking - {"sparsity"}:
        return
    added = dict.fromkeys(lacking, _MOST)
    try:
        create_method(name, **{**added, **fields})
    except ValueError as error:
        if "sparsity" in fields or not str(error).startswith("sparsity"):
            raise


def _check_table(key: str, value: object) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{key}={value!r}: must be a table")

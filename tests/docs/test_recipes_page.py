"""The page of recipe files names every field, with its default, and fields that the methods have."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

from granet.methods import list_methods
from granet.training.recipe import Recipe
from granet.training.recipe_file import read_recipe_file

PAGE = Path("docs/recipes.md").read_text(encoding="utf-8")
_, FIELDS, METHODS = PAGE.split("| --- | --- | --- |\n")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in FIELDS.split("\n\n")[0].splitlines()]
DEFAULTS = {
    name: default
    for names, defaults, _ in ROWS
    for name, default in zip(re.findall(r"`(\w+)`", names), re.split(r", (?![^\[]*\])", defaults), strict=True)
}


def test_every_field_is_there() -> None:
    assert sorted(DEFAULTS) == sorted(
        field.name for field in dataclasses.fields(Recipe) if field.name != "method_fields"
    )


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_default_is_the_recipes(name: str) -> None:
    said = tomllib.loads(f"value = {DEFAULTS[name].strip('`')}")["value"]
    default = getattr(Recipe(), name)
    assert said == (list(default) if isinstance(default, tuple) else default)


def test_methods_have_the_fields_that_are_said_to_be_theirs() -> None:
    of = {info.name: {field.name for field in dataclasses.fields(info.cls)} for info in list_methods()}
    for line in METHODS.split("\n\n")[0].splitlines():
        names, methods, _ = (re.findall(r"`([\w-]+)`", cell) for cell in line.split("|")[1:4])
        assert names and methods
        assert all(name in of[method] for name in names for method in methods), line


def test_the_example_is_a_recipe_file(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example
    (tmp_path / "example.toml").write_text(example[1], encoding="utf-8")
    recipe = read_recipe_file(tmp_path / "example.toml").recipe("gmp")
    assert (recipe.model, recipe.method_fields["prune_end"]) == ("vgg19", "68.75%")

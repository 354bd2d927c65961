"""The options of `granet train` that are on, off or as the recipe says."""

from pathlib import Path

import pytest

from granet.cli import main
from granet.cli.train import Train
from granet.training import Recipe

RECIPE = (
    'data = "digits"\nmodel = "digits_net"\ncompile = true\ndeterministic = true\n[methods.granet]\nsparsity = 0.5\n'
)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes of the commands that are called, which train nothing."""
    found: list[Recipe] = []
    monkeypatch.setattr(Train, "run", lambda train, console: found.append(train.whole_recipe()))
    return found


@pytest.mark.parametrize(
    ("options", "plain", "written"),
    [
        ("", (False, False), (True, True)),
        ("--deterministic", (False, True), (True, True)),
        ("--no-deterministic", (False, False), (True, False)),
        ("--compile", (True, False), (True, True)),
        ("--no-compile --deterministic", (False, True), (False, True)),
    ],
)
def test_flags_replace_the_recipes_value_only_when_given(
    options: str, plain: tuple[bool, bool], written: tuple[bool, bool], parsed: list[Recipe], tmp_path: Path
) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(RECIPE)
    main(["train", *options.split()])
    main(["train", str(file), *options.split()])
    assert [(recipe.compile, recipe.deterministic) for recipe in parsed] == [plain, written]

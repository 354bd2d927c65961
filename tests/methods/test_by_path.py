"""Methods of one's own by import path, `package.module:Class`: found wherever a method's name may stand."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import torch

import granet
from granet.cli import main
from granet.cli.train import Train
from granet.methods import registry
from granet.studies.spec import read_spec
from granet.training import Recipe, RunDir
from granet.training.recipe_file import read_recipe_file
from granet.training.rundir import run_name
from refusals import check_line, refused

MINE = '''
from dataclasses import dataclass, field

import granet
from granet.methods.registry import register
from granet.methods.rigl import RigL


@dataclass(frozen=True, kw_only=True)
class Mine(RigL):
    """RigL with another name."""

    strength: float = 1.0


@register("named", paper="none", score="magnitude")
class Named(Mine):
    """It has a name too."""


class Abstract(granet.Method):
    pass


@dataclass(frozen=True, kw_only=True)
class Needy(Mine):
    depth: int
    cached: int = field(init=False, default=0)


NUMBER = 3
'''


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module `mine_by_path`; what it registers is forgotten after the test."""
    (tmp_path / "mine_by_path.py").write_text(MINE, encoding="utf-8")
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.delitem(sys.modules, "mine_by_path", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_a_method_like_any_other() -> None:
    method = granet.create_method("mine_by_path:Mine", sparsity=0.5, strength=2)
    assert type(method).__name__ == "Mine" and method == type(method)(sparsity=0.5, strength=2)
    info = granet.list_methods()[-1]
    assert (info.name, info.summary, info.paper, info.when) == (
        "mine_by_path:Mine", "RigL with another name.", "", "during",
    )  # fmt: skip
    with refused("srength", 2):
        granet.create_method("mine_by_path:Mine", sparsity=0.5, srength=2)


def test_what_is_registered_about_it_is_known() -> None:
    granet.create_method("mine_by_path:Named", sparsity=0.5)
    first, second = granet.list_methods()[-2:]
    assert (first.name, second.name) == ("named", "mine_by_path:Named")
    assert first.score == second.score == "magnitude" and first.cls is second.cls


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        ("mine_by_path:Abstract", "granet.Method"),
        ("mine_by_path:NUMBER", "granet.Method"),
        ("mine_by_path:dataclass", "granet.Method"),
        ("mine_by_path:Absent", "'mine_by_path' has no 'Absent'"),
        ("mine_by_path:", "'mine_by_path' has no ''"),
        ("json:Mine", os.path.join("json", "__init__.py")),  # not a json.py in this folder
        ("no_such_module:Mine", "'no_such_module'"),
        (".mine_by_path:Mine", "without a dot before it"),
    ],
)
def test_what_is_no_method_is_refused(name: str, tells: str, capsys: pytest.CaptureFixture[str]) -> None:
    with refused("method", name, tells):
        granet.create_method(name, sparsity=0.5)
    with pytest.raises(SystemExit) as ended:
        main(["train", "--method", name])
    assert ended.value.code == 2
    check_line(capsys.readouterr().err.removeprefix("granet: ").removesuffix("\n"), "method", name, tells)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(:", r"SyntaxError: invalid syntax \(broken\.py, line 1\)"),
        ("\nraise RuntimeError('this\\nand that')", r"RuntimeError: this; .*broken\.py, line 2"),
        ("import sys\nsys.exit(3)", r"SystemExit: 3; .*broken\.py, line 2"),
        ("import no_such_module", r"No module named 'no_such_module'; .*broken\.py, line 1"),
        (
            "import dataclasses, granet\n\n@dataclasses.dataclass\nclass Mine(granet.GMP): pass",
            r"TypeError: cannot inherit non-frozen dataclass from a frozen one; .*broken\.py, line 3",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_in_one_line(
    mine: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "broken.py").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["train", "--method", "broken:Mine"])
    whole = rf"granet: method='broken:Mine': must be importable, module 'broken' is not \({says}\)\n"
    assert ended.value.code == 2 and re.fullmatch(whole, capsys.readouterr().err)


def test_fields_that_must_or_cannot_be_given(mine: Path) -> None:
    with refused("depth"):
        granet.create_method("mine_by_path:Needy", sparsity=0.5)
    with refused("cached", 1):
        granet.create_method("mine_by_path:Needy", sparsity=0.5, depth=1, cached=1)
    (mine / "recipe.toml").write_text(
        "epochs = 2\n[methods.'mine_by_path:Needy']\nstrength = 2.0\n"
    )  # the grid has more
    (mine / "grid.toml").write_text(
        "recipe = 'recipe.toml'\nmethod = 'mine_by_path:Needy'\nsparsity = 0.5\ndepth = [1, 2]\n"
    )
    assert [recipe.method_fields["depth"] for recipe in read_spec(mine / "grid.toml").recipes] == [1, 2]


def test_its_state_does_not_depend_on_how_it_was_found() -> None:
    """It is one class, whether a script imports it or a recipe names it."""
    cls = importlib.import_module("mine_by_path").Mine

    def sparsifier(method: granet.Method) -> granet.Sparsifier:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return granet.sparsify(model, optimizer, method, total_steps=200)

    imported = sparsifier(cls(sparsity=0.5))
    state = imported.state_dict()
    sparsifier(granet.create_method("mine_by_path:Mine", sparsity=0.5)).load_state_dict(state)
    imported.load_state_dict(state)


@pytest.mark.parametrize("make", [granet.create_method, lambda name: Recipe(method=name)])
def test_an_unknown_name_says_how_to_name_ones_own(make: Callable[[str], object]) -> None:
    with refused("method", "mine", "package.module:Class of your own"):
        make("mine")


def test_recipe_files_and_options(mine: Path) -> None:
    file = mine / "recipe.toml"
    file.write_text("epochs = 2\n[methods.'mine_by_path:Mine']\nsparsity = 0.5\nstrength = 2\n")
    recipe = read_recipe_file(file).recipe("mine_by_path:Mine")
    assert recipe.method_fields == {"sparsity": 0.5, "strength": 2.0}
    assert type(recipe.method_fields["strength"]) is float  # 2 and 2.0 are one run
    assert Train(recipe=file, method="mine_by_path:Mine", sparsity=0.7).whole_recipe().method_fields["sparsity"] == 0.7
    assert Train(method="mine_by_path:Mine").whole_recipe().method_fields == {"sparsity": 0.9, "every": "1ep"}
    for text, tells in (
        ("[methods.'mine_by_path:Mine']\nstrenth = 2\n", "'methods.mine_by_path:Mine.strength'"),
        ("[methods.'mine_by_path:Minx']\n", "method='mine_by_path:Minx': must"),
        ("method = 'mine_by_path:Mine'\nstrength = 2\n", "it stands under [methods.'mine_by_path:Mine']"),
        ("method = ['mine_by_path:Mine']\n", "method=['mine_by_path:Mine']: must"),
        ("method = 'mine_by_path:Minx'\n", "method='mine_by_path:Minx': must"),
    ):
        file.write_text(text)
        with refused(file, ..., tells):
            read_recipe_file(file)


def test_a_file_alone_may_choose_it_with_whole_numbers(mine: Path) -> None:
    """The class must be imported before the recipe is made: only then are its fractions known."""
    file = mine / "recipe.toml"
    file.write_text("method = 'mine_by_path:Mine'\n[methods.'mine_by_path:Mine']\nsparsity = 0\n")
    assert type(read_recipe_file(file).recipe().method_fields["sparsity"]) is float


def test_fields_of_its_own_are_known_in_every_part_of_a_grid(mine: Path) -> None:
    """Above the first [[runs]] they are ignored by methods that come before it."""
    grid = mine / "grid.toml"
    grid.write_text("sparsity = 0.5\nstrength = 2\n[[runs]]\nmethod = 'rigl'\n[[runs]]\nmethod = 'mine_by_path:Mine'\n")
    assert [recipe.method_fields for recipe in read_spec(grid).recipes] == [
        {"sparsity": 0.5},
        {"sparsity": 0.5, "strength": 2.0},
    ]
    grid.write_text(
        "sparsity = 0.5\nstrength = 2\n[[runs]]\nmethod = 'rigl'\n"
        "[[runs]]\nmethod = 'lth'\nparent = {method = 'mine_by_path:Named'}\n"
    )
    assert [recipe.method_fields.get("strength") for recipe in read_spec(grid).recipes] == [None, 2.0, None]


@pytest.mark.parametrize("fields", ['"method_fields": {"sparsity": 0.5}, ', ""])
def test_looking_at_a_folder_imports_nothing(mine: Path, fields: str) -> None:
    """It may be a stranger's."""
    folder = mine / "runs" / "a run"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(f'{{"recipe": {{{fields}"method": "mine_by_path:Mine"}}}}')
    assert RunDir(folder).recipe.method == "mine_by_path:Mine"
    assert "mine_by_path" not in sys.modules


@pytest.mark.slow
def test_train_goes_on_and_sweep_finds_it_in_its_processes(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> NoReturn:
        raise RuntimeError("crashed")

    command = "train --method mine_by_path:Mine --epochs 2 --batch-size 256 --no-dense-twin --checkpoint-every 0"
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="crashed"):
        patched.setattr(RunDir, "finish", crash)
        main(command.split())
    (folder,) = (mine / "runs").iterdir()
    assert folder.name.startswith("digits-digits_net-mine_by_path.Mine-0.9-seed0-")
    main(command.split())
    assert "goes on after epoch 1" in capsys.readouterr().out

    grid = mine / "grid.toml"
    grid.write_text(
        "epochs = 2\nbatch_size = 256\nsparsity = 0.5\nevery = 2\nseed = [0, 1]\nmethod = 'mine_by_path:Mine'\n"
    )
    main(["sweep", str(grid), "--packed", "2"])
    assert all((mine / "runs" / run_name(recipe) / "summary.json").exists() for recipe in read_spec(grid).recipes)

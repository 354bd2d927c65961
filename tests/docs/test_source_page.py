"""The map of the source names every module once, and imports go down it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "granet"
PAGE = (ROOT / "docs" / "source.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[list[str]]:
    """The modules in each row of the table under a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [re.findall(r"`(\w+)`", line.split("|")[2]) for line in lines]


ROWS = rows_of("Modules, from top to bottom")


def modules_in(folder: Path) -> list[str]:
    files = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")]
    return sorted([*files, *(path.parent.name for path in folder.glob("*/__init__.py"))])


def imported(path: Path) -> Iterator[str]:
    """The parts of granet that a file imports from; the version, which the package itself has, is no part."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "granet":
            yield from (alias.name for alias in node.names if alias.name != "__version__")
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("granet."):
            yield node.module.split(".")[1]


@pytest.mark.parametrize(
    ("heading", "folder"),
    [
        ("Modules, from top to bottom", SOURCE),
        ("Inside the sparsifier", SOURCE / "sparsifier"),
        ("Inside the net", SOURCE / "net"),
        ("Inside the weights", SOURCE / "weights"),
        ("Inside the kernels", SOURCE / "kernels"),
        ("Inside the trainer", SOURCE / "training"),
        ("Inside the studies", SOURCE / "studies"),
    ],
)
def test_every_module_is_there_once(heading: str, folder: Path) -> None:
    assert sorted(name for row in rows_of(heading) for name in row) == modules_in(folder)


@pytest.mark.parametrize("name", [name for row in ROWS for name in row])
def test_imports_go_down(name: str) -> None:
    place = {module: number for number, row in enumerate(ROWS) for module in row}
    files = [SOURCE / f"{name}.py"] if (SOURCE / f"{name}.py").is_file() else list((SOURCE / name).rglob("*.py"))
    up = {(path.name, other) for path in files for other in imported(path) if place[other] < place[name]}
    assert not up

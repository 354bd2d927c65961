"""The map of the source names every module once, and imports go down it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import granet

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
        ("Inside the channels", SOURCE / "channels"),
        ("Inside the net", SOURCE / "net"),
        ("Inside the weights", SOURCE / "weights"),
        ("Inside the kernels", SOURCE / "kernels"),
        ("Inside the runtime", SOURCE / "deploy"),
        ("Inside the bench", SOURCE / "deploy" / "bench"),
        ("Inside the native kernels", SOURCE / "native"),
        ("Inside the trainer", SOURCE / "training"),
        ("Inside the studies", SOURCE / "studies"),
        ("Beside the library: the paper's tables", ROOT / "paper"),
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


def test_no_modules_import_each_other() -> None:
    """Not by way of others either, and not in functions or for types alone."""
    folders = dict.fromkeys(SOURCE.rglob("*.py"), ROOT / "src") | dict.fromkeys((ROOT / "paper").rglob("*.py"), ROOT)
    files = {".".join(path.relative_to(root).with_suffix("").parts): path for path, root in folders.items()}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & files.keys()
            elif isinstance(node, ast.ImportFrom) and node.module in files:
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                graph[name] |= {one if one in files else node.module for one in inside}
    assert sum(map(len, graph.values())) > 800
    TopologicalSorter(graph).prepare()  # CycleError names them


def test_the_library_knows_nothing_of_the_paper_desk() -> None:
    """Which is not installed."""
    nodes = [node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    parts = {name.split(".")[0] for name in names}
    assert "granet" in parts and "paper" not in parts


def test_the_walk_through_an_update_is_in_order_of_call() -> None:
    """Every line of it is called after the one before it, while the line it is indented below is running."""
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    granet.sparsify(model, optimizer, granet.GraNet(sparsity=0.8, every=1), total_steps=10)
    model(torch.randn(4, 12)).square().sum().backward()
    events: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event in ("call", "return") and frame.f_globals.get("__name__", "").startswith("granet."):
            events.append((event, f"{frame.f_globals['__name__'].rpartition('.')[2]}.{frame.f_code.co_name}"))

    sys.setprofile(note)
    try:
        optimizer.step()
    finally:
        sys.setprofile(None)

    walk = PAGE.split("## One training step\n")[1].split("```")[1]
    at, parents = 0, []
    for line in walk.strip("\n").splitlines():
        if (found := re.match(r"( *)(\w+\.\w+)", line)) is None or len(found[1]) > 16:
            continue
        depth, name = len(found[1]) // 4, found[2]
        at = events.index(("call", name), at) + 1
        del parents[depth:]
        for parent in parents:
            calls = [event for event, other in events[:at] if other == parent]
            assert calls.count("call") > calls.count("return"), f"{name} is not called by {parent}"
        parents.append(name)

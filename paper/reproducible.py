"""What `python -m paper` asks of a table: its runs, its cells, and its page."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from granet.files import write_text
from granet.training.recipe import Recipe

PAGES = Path("docs/results")
"""Where pages and figures go, under the root of the repository."""


@dataclass(frozen=True)
class Selection:
    """A part of a table; an empty field selects everything."""

    seeds: tuple[int, ...] = ()
    """By default those of the table."""
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    sparsities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if len(set(value)) < len(value):
                raise ValueError(f"{field.name}={value!r}: must have each once")

    def allow(self, table: str, *allowed: str) -> None:
        """ValueError if a field is set that cannot select parts of this table."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value and field.name not in allowed:
                raise ValueError(f"{field.name}={value!r}: must be left out, {table} has no parts by {field.name}")


class Table(Protocol):
    """A table of the paper, or past it, that is measured here."""

    def missing(self, done: Collection[str], out: Path) -> list[Recipe]:
        """The runs left to train under ``out``, each after the one it starts from; ``done`` names finished runs."""

    def keep(self, recipe: Recipe, out: Path, results: Path) -> None:
        """Put a finished run into the results."""

    def lines(self, results: Path) -> Iterator[str]:
        """Every cell: what the paper says, what was measured, what is missing."""

    def write(self, results: Path, root: Path) -> Iterator[Path]:
        """Make the page and the figure from the results again; yields the files that were written."""


def check_write(selection: Selection, results: Path, root: Path) -> None:
    """ValueError unless whole pages can be made there, from results that exist."""
    if selection != Selection():
        raise ValueError("write=True: makes whole pages, so seeds, models, data, rows and sparsities must be left out")
    if not any(results.glob("*.csv")):
        raise ValueError(f"results={str(results)!r}: must be a folder with files of results, *.csv")
    if not (root / PAGES).is_dir():
        raise ValueError(f"write=True: must be asked for in the root of a checkout, where {PAGES} is")


def write_page(path: Path, text: str) -> Path:
    """The file with that text, in a folder that is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path

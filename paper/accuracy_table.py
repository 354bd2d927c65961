"""Tables of accuracies: one cell is the mean of some runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from granet.training.recipe import Recipe
from granet.training.rundir import run_name
from paper import results_page
from paper.arrangement import measured
from paper.compare import Comparison, compare, run_names
from paper.front_table import with_results
from paper.reproducible import PAGES, Selection, write_page
from paper.results import keep, read_results
from paper.results_figure import against_sparsity
from paper.tables import Cell, cells
from paper.wording import NAMES, in_words

SEEDS = (0, 1, 2)
"""As many as in the paper."""

Figure = Callable[[Sequence[Comparison], Path], None]
"""Draws them into a file."""

_PARTS = {"models": "model", "data": "data", "rows": "row", "sparsities": "sparsity"}
"""Fields of a selection, and what they choose cells by."""


@dataclass(frozen=True)
class AccuracyTable:
    """A table of `paper.tables`, or a part of it."""

    name: str
    selection: Selection
    page: Callable[[str, Sequence[Comparison]], str] = results_page.page
    figures: Mapping[str, Figure] = field(default_factory=lambda: {"": against_sparsity})
    """By what is put behind the table's name in the name of the file."""
    readme: bool = False
    """Whether its measured part is shown in the README."""
    default_seeds: tuple[int, ...] = SEEDS
    """The seeds that are run unless others are chosen."""

    def __post_init__(self) -> None:
        for name, of_cell in _PARTS.items():
            known = dict.fromkeys(getattr(cell, of_cell) for cell in cells(self.name))
            for value in getattr(self.selection, name):
                if value not in known:
                    allowed = ", ".join(map(repr, known))  # a row may have a comma in its name
                    raise ValueError(f"{name}={value!r}: {self.name} has no such part; it has {allowed}")
        if not self.cells:
            raise ValueError(f"table={self.name!r}: has no cell with these models, data, rows and sparsities")

    @property
    def cells(self) -> list[Cell]:
        return [cell for cell in cells(self.name) if self._asked(cell)]

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.selection.seeds or self.default_seeds

    def missing(self, done: Collection[str], out: Path) -> list[Recipe]:
        found: dict[Recipe, None] = {}
        for seed in self.seeds:
            for cell in self.cells:
                recipes = cell.recipes(seed)
                if recipes and run_name(recipes[-1]) not in done:
                    found |= dict.fromkeys(recipes)
        return list(found)

    def keep(self, recipe: Recipe, out: Path, results: Path) -> None:
        keep(recipe, out, results, self.name)

    def lines(self, results: Path) -> Iterator[str]:
        done = read_results(results)
        for one in compare(self.cells, done, self.selection.seeds or SEEDS):  # all that the pages show
            cell = one.cell
            what = f"{NAMES[cell.model]:<10}{NAMES[cell.data]:<10}{cell.row:<38}{cell.sparsity:<5.0%}"
            runs = run_names(cell, self.seeds)
            state = f"{sum(run in done for run in runs)} of {len(runs)} seeds" if runs else "no recipe"
            printed = "-" if cell.accuracy is None else f"{cell.accuracy:.2f}"
            yield f"{what}{state:<14}paper {printed:<7}ours {in_words(one)}"

    def write(self, results: Path, root: Path) -> Iterator[Path]:
        """Write all cells, whatever part was chosen: a page shows a whole table, with seeds that other tables ran."""
        readme = root / "README.md"
        if self.readme and not readme.is_file():
            raise ValueError("write=True: must be asked for in the root of a checkout, where README.md is")
        comparisons = compare(cells(self.name), read_results(results), SEEDS)
        text = with_results(readme.read_text(encoding="utf-8"), comparisons) if self.readme else ""
        path = root / PAGES / f"{self.name}.md"
        yield write_page(path, self.page(self.name, comparisons))
        for ending, draw in self.figures.items() if measured(comparisons) else ():
            picture = path.with_name(f"{self.name}{ending}.png")
            draw(comparisons, picture)
            yield picture
        if self.readme:
            yield write_page(readme, text)

    def _asked(self, cell: Cell) -> bool:
        chosen = ((getattr(self.selection, name), getattr(cell, of_cell)) for name, of_cell in _PARTS.items())
        return all(not several or one in several for several, one in chosen)

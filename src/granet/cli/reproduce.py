"""`granet reproduce`."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from tyro.conf import Positional

from granet.cli.device import STREAMS, choose_device
from granet.cli.sweep import train_all
from granet.data import load
from granet.files import atomic
from granet.studies.compare import Comparison, compare, read_results, seed_spread
from granet.studies.jobs import Place
from granet.studies.results import log, rows, write_csv
from granet.studies.results_page import NAMES, figure, headline, in_words, page
from granet.studies.tables import Cell, cells
from granet.training import Recipe, RunDir
from granet.training.rundir import run_name

README_BEGIN, README_END = "<!-- results: made by granet reproduce cifar-main --write -->", "<!-- end of results -->"


@dataclass(frozen=True)
class Reproduce:
    """Measure a table of the paper again: train what is missing, and show ours beside the paper's.

    Finished runs go to `results/TABLE-DEVICE-torchVERSION.csv`, with a log each, as soon as they are done; the same
    command goes on with the rest. Options choose a part of the table.
    """

    table: Annotated[Literal["cifar-main", "cifar-uniform", "retraining", "reinit", "beyond"], Positional]
    """Which table: the main one on CIFAR, uniform instead of global pruning, retraining of found networks, their
    masks from fresh weights, or what goes past the paper."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One run for each."""
    models: tuple[str, ...] = ()
    """Only these networks (`vgg19`, `resnet50`)."""
    data: tuple[str, ...] = ()
    """Only these data sets (`cifar10`, `cifar100`)."""
    rows: tuple[str, ...] = ()
    """Only rows with these names, as the paper writes them."""
    sparsities: tuple[float, ...] = ()
    """Only these sparsities; 0 is the dense network."""
    dry_run: bool = False
    """Only list every cell, what it says in the paper and here, and which seeds are missing."""
    write: bool = False
    """Train nothing: write the page and figure in `docs/results`, and the table in `README.md`, from the results."""
    out: Path = Path("runs")
    """Where the run folders go."""
    results: Path = Path("results")
    """Where the results of finished runs are kept."""
    packed: int = STREAMS
    """Runs at once."""
    data_dir: Path | None = None
    """Where the files of the image sets are; by default the folder that GRANET_DATA names."""
    device: str | None = None
    """Where to train; by default a GPU if there is one."""

    def run(self, console: Console) -> None:
        """Train what is missing; print, and write the results."""
        chosen = [cell for cell in cells(self.table) if self._asked(cell)]
        if not chosen:
            raise ValueError(f"table={self.table!r}: has no cell with these models, data, rows and sparsities")
        if self.write:
            self._write(console)
        elif not self.dry_run:
            self._train(console, chosen)
        self._show(console, compare(chosen, read_results(self.results), self.seeds))

    def _asked(self, cell: Cell) -> bool:
        asked: Sequence[tuple[Sequence[Any], Any]] = (
            (self.models, cell.model),
            (self.data, cell.data),
            (self.rows, cell.row),
            (self.sparsities, cell.sparsity),
        )
        return all(not several or one in several for several, one in asked)

    def _show(self, console: Console, comparisons: Sequence[Comparison]) -> None:
        spread = seed_spread(comparisons)
        for one in comparisons:
            cell = one.cell
            what = f"{NAMES[cell.model]:<10}{NAMES[cell.data]:<10}{cell.row:<29}{cell.sparsity:<6.0%}"
            known = cell.recipes(0)
            state = f"{len(one.last)} of {len(self.seeds)} seeds" if known else "no recipe"
            printed = "-" if cell.accuracy is None else f"{cell.accuracy:.2f}"
            told = f"{what}{state:<14}paper {printed:<7}ours {in_words(one, spread)}"
            console.print(told, highlight=False, soft_wrap=True)

    def _train(self, console: Console, chosen: Sequence[Cell]) -> None:
        done = read_results(self.results)
        missing: dict[Recipe, None] = {}
        for seed in self.seeds:
            for cell in chosen:
                recipes = cell.recipes(seed)
                if recipes and run_name(recipes[-1]) not in done:
                    missing |= dict.fromkeys(recipes)
        if not missing:
            console.print("every cell has been measured", highlight=False)
            return
        device = choose_device(self.device, embedded=False)
        for name in sorted({recipe.data for recipe in missing}):
            load(name, data_dir=self.data_dir)
        place = Place(device, self.out, self.data_dir)
        for recipe in train_all(console, list(missing), place, self.packed):
            self._keep(recipe)

    def _keep(self, recipe: Recipe) -> None:
        """Put a finished run into the results at once."""
        (row,) = rows([recipe], self.out)
        device = row["device"].lower().removeprefix("nvidia ").replace(" ", "-")
        version = ".".join(row["torch"].split(".")[:2])
        path = self.results / f"{self.table}-{device}-torch{version}.csv"
        (self.results / "logs").mkdir(parents=True, exist_ok=True)
        with atomic(self.results / "logs" / f"{row['run']}.json") as temporary:
            text = json.dumps(log(RunDir.find(self.out, recipe)), separators=(",", ":"))
            temporary.write_text(text + "\n", encoding="utf-8")
        kept: dict[str, dict[str, Any]] = {**read_results(self.results)}
        kept = {name: old for name, old in kept.items() if old["file"] == path.name}
        write_csv(path, (kept | {row["run"]: row}).values())  # a run that others start from may be there already

    def _write(self, console: Console) -> None:
        """The page, the figure and the README's table, from all seeds that there are."""
        comparisons = compare(cells(self.table), read_results(self.results), self.seeds)
        target = Path("docs") / "results" / f"{self.table}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic(target) as temporary:
            temporary.write_text(page(self.table, comparisons), encoding="utf-8")
        console.print(f"wrote {target}", highlight=False)
        if self.table != "cifar-main":
            return
        if importlib.util.find_spec("matplotlib") is not None:
            figure(comparisons, "vgg19", "cifar10", target.with_suffix(".png"))
        readme = Path("README.md")
        with atomic(readme) as temporary:
            temporary.write_text(with_results(readme.read_text(encoding="utf-8"), comparisons), encoding="utf-8")
        console.print(f"wrote the table in {readme}", highlight=False)


def with_results(readme: str, comparisons: Sequence[Comparison]) -> str:
    """The README with its table of results made anew."""
    before, found, rest = readme.partition(README_BEGIN)
    _, ended, after = rest.partition(README_END)
    if not found or not ended:
        raise ValueError(f"README.md: must have the lines {README_BEGIN!r} and {README_END!r}")
    measured = dict.fromkeys((one.cell.model, one.cell.data) for one in comparisons if one.last)
    tables = [headline(comparisons, model, data) for model, data in measured]
    return before + README_BEGIN + "\n" + "\n\n".join(tables) + "\n" + README_END + after

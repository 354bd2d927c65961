"""`python -m paper`."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from granet.cli.device import choose_device, choose_packed
from granet.cli.many_runs import train_all
from granet.data import load
from granet.files import make_folder
from granet.studies.jobs import Place
from paper.registry import TABLES, Name
from paper.reproducible import Selection, Table, check_write
from paper.results import read_results

_TABLE = (
    "Which table: the main one on CIFAR, every method once, uniform instead of global pruning, retraining of found "
    "networks, their masks from fresh weights, what goes past the paper, pruning plasticity, or the budgets of layers."
)


@dataclass(frozen=True)
class Reproduce:
    """Measure a table of the paper again: train what is missing, and show ours beside the paper's.

    Finished runs go to `results/TABLE-DEVICE-torchVERSION.csv`, with a log each, as soon as they are done; the same
    command goes on with the rest. Options choose a part of the table.
    """

    table: Annotated[Name, Positional, arg(help=_TABLE)]
    seeds: tuple[int, ...] = ()
    """One run for each; by default 0, 1 and 2, for `zoo` and `plasticity` only 0."""
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
    """Train nothing: write the page and the figure in `docs/results`, and for `cifar-main` the table in `README.md`."""
    out: Path = Path("runs")
    """Where the run folders go."""
    results: Path = Path("results")
    """Where the results of finished runs are kept."""
    packed: int | None = None
    """Runs at once; by default one per CPU core, or some on a GPU."""
    data_dir: Path | None = None
    """Where the image files are; by default in the folder that GRANET_DATA names, else in ~/.cache/granet."""
    device: str | None = None
    """Where to train; by default a GPU if there is one."""

    def run(self, console: Console) -> None:
        """Write, or train what is missing; then show every cell."""
        if self.write and self.dry_run:
            raise ValueError("write=True: a dry run writes nothing; leave one of the two out")
        if self.dry_run and self.results != Reproduce.results and not self.results.is_dir():
            raise ValueError(f"results={str(self.results)!r}: must be a folder with files of results, *.csv")
        chosen = Selection(self.seeds, self.models, self.data, self.rows, self.sparsities)
        table = TABLES[self.table](chosen)
        if self.write:
            if importlib.util.find_spec("matplotlib") is None:
                raise ValueError("write=True: needs matplotlib, pip install 'granet[plots]'")
            check_write(chosen, self.results, Path())
            for path in table.write(self.results, Path()):
                console.print(f"wrote {path}", soft_wrap=True)
        elif not self.dry_run:
            self._train(console, table)
        for line in table.lines(self.results):
            console.print(line, soft_wrap=True)

    def _train(self, console: Console, table: Table) -> None:
        missing = table.missing(read_results(self.results), self.out)
        if not missing:
            console.print("there is nothing left to train")
            return
        device = choose_device(self.device, embedded=False)
        for name in sorted({recipe.data for recipe in missing}):
            load(name, data_dir=self.data_dir)  # missing files are one clear line now, not one in each run
        place = Place(device, self.out, self.data_dir)
        packed = choose_packed(self.packed, None, device)
        make_folder("out", self.out)
        make_folder("results", self.results)  # now, not when hours of training are to be kept
        for recipe in train_all(console, missing, place, packed):
            table.keep(recipe, self.out, self.results)

"""`granet sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from granet.cli.options import ManyRuns
from granet.files import make_folder, writing_to

if TYPE_CHECKING:
    from rich.console import Console

    from granet.training import Recipe


@dataclass(frozen=True, kw_only=True)
class Sweep(ManyRuns):
    """Train a grid of runs, several at a time on one device.

    The grid is a TOML file: keys are fields of a recipe or a method, lists are crossed, `[[runs]]` begins a further
    part of the grid. Each run has its folder, as with `granet train`: finished runs are not repeated, begun ones go on.
    A run that fails does not touch the others. `results.csv` has one row for each finished run.
    """

    spec: Annotated[Path, Positional]
    """The file, or the name of one that comes with granet, such as `zoo-digits`."""
    out: Path = Path("runs")
    """Where the run folders and `results.csv` go."""
    workers: int | None = None
    """Processes that read images for each run, for a set that stays in its files."""

    def run(self, console: Console) -> None:
        """Train what is not finished, show and save."""
        from granet.cli.console import sweep_table
        from granet.cli.device import choose_device, choose_packed, choose_threads
        from granet.cli.many_runs import list_runs, train_all
        from granet.data import load
        from granet.studies.jobs import Place
        from granet.studies.settings import told_apart
        from granet.studies.spec import read_spec
        from granet.training.recipe_file import recipe_path

        spec = read_spec(recipe_path(self.spec, field="spec"))
        if self.dry_run:
            list_runs(console, spec.recipes, self.out)
            return
        sets = sorted({recipe.data for recipe in spec.recipes})
        device = choose_device(self.device, embedded=sets == ["digits"])
        for name in sets:
            load(name, data_dir=self.data_dir)  # missing files are one clear line now, not one in each run
        choose_threads(self.threads, embedded=sets == ["digits"])
        packed = choose_packed(self.packed, spec.packed, device)
        place = Place(device, self.out, self.data_dir, self.workers, self.checkpoint_every)
        make_folder("out", self.out)
        told = told_apart(spec.recipes)
        finished: dict[Recipe, dict[str, Any]] = {}
        try:
            for recipe in train_all(console, spec.recipes, place, packed):
                finished |= self._read([recipe], told)  # not all of them each time: there may be hundreds
                self._save([finished[one] for one in spec.recipes if one in finished])
        finally:
            finished = self._read(spec.recipes, told)
            self._save(list(finished.values()))
            scaled = any(recipe.width != 1 for recipe in spec.recipes)
            console.print(sweep_table(list(finished.values()), scaled))
            console.print(f"saved in {self.out / 'results.csv'}", soft_wrap=True)

    def _read(self, recipes: Sequence[Recipe], told: Mapping[str, str]) -> dict[Recipe, dict[str, Any]]:
        """The row of each finished run, with the settings that tell it from others."""
        from granet.studies.results import row_of

        found = ((recipe, row_of(recipe, self.out)) for recipe in recipes)
        return {recipe: row | {"settings": told[row["run"]]} for recipe, row in found if row is not None}

    def _save(self, finished: Sequence[Mapping[str, Any]]) -> None:
        from granet.studies.results import COLUMNS, write_csv

        with writing_to("out", self.out):
            write_csv(self.out / "results.csv", finished, (*COLUMNS, "settings"))

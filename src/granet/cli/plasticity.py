"""`granet plasticity`."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from granet.cli.options import ManyRuns
from granet.files import make_folder, write_text, writing_to

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from granet.studies.plasticity import Study
    from granet.studies.plasticity_results import Point


@dataclass(frozen=True, kw_only=True)
class Plasticity(ManyRuns):
    """Measure pruning plasticity: how well a net recovers from one-shot pruning, at every stage of its training.

    Pre-trains at several sparsities, keeps checkpoints, prunes each at several rates with and without regeneration, and
    trains on: for k epochs at the learning rate of the moment (plasticity), and to the end (final gap). All runs have
    their folders: finished ones are not repeated, begun ones go on. Writes `plasticity.csv`, a figure (PNG and SVG) for
    each measure, and `plasticity.html`. Figures need matplotlib: pip install 'granet[plots]'.
    """

    spec: Annotated[Path, Positional]
    """The file, or the name of one that comes with granet, such as `studies/plasticity-digits`."""
    out: Path = Path("runs/plasticity")
    """Where the run folders, the numbers and the figures go."""

    def run(self, console: Console) -> None:
        """Train what is not finished, show and save."""
        from granet.cli.device import choose_device, choose_packed, choose_threads
        from granet.cli.many_runs import list_runs, train_all
        from granet.data import load
        from granet.studies.jobs import Place
        from granet.studies.plasticity_file import read_study
        from granet.studies.plasticity_results import check_kept, points
        from granet.training.recipe_file import recipe_path

        study, packed = read_study(recipe_path(self.spec, field="spec"))
        if self.dry_run:
            list_runs(console, study.recipes(), self.out)
            return
        device = choose_device(self.device, embedded=study.recipe.data == "digits")
        # missing files and a network that does not fit are one clear line now, not one in each run
        study.check_fit(load(study.recipe.data, data_dir=self.data_dir))
        choose_threads(self.threads, embedded=study.recipe.data == "digits")
        check_kept(study.branches(), self.out)
        packed = choose_packed(self.packed, packed, device)
        place = Place(device, self.out, self.data_dir, checkpoint_every=self.checkpoint_every)
        make_folder("out", self.out)
        try:
            for _ in train_all(console, study.recipes(), place, packed):
                pass
        finally:
            found = points(study, self.out)
            with writing_to("out", self.out):
                self._write(console, study, found)

    def _write(self, console: Console, study: Study, found: list[Point]) -> None:
        """The numbers, the figures and the page, of as many branches as are finished."""
        from granet.studies.plasticity_results import rate_drops, write_points

        write_points(self.out / "plasticity.csv", found)
        for measure in study.measures:
            console.print(summary_table(study, measure, [point for point in found if point.measure == measure]))
        told = f"{len(found)} of {len(study.branches())} branches in {self.out / 'plasticity.csv'}"
        console.print(told, soft_wrap=True)
        if importlib.util.find_spec("matplotlib") is None:
            console.print("no figures: pip install 'granet[plots]'")
            return
        from granet.studies.plasticity_figure import title, write_figure
        from granet.studies.plasticity_page import page
        from granet.training import RunDir

        drops = rate_drops(RunDir.find(self.out, study.trunks()[0]).records)
        for measure in study.measures:
            for distribution in study.distributions:
                chosen = [point for point in found if (point.measure, point.distribution) == (measure, distribution)]
                path = self.out / f"{measure}-{distribution}.png"
                write_figure(study, chosen, drops, title(study, measure, distribution), path)
                console.print(f"drew {path} and .svg", soft_wrap=True)
        write_text(self.out / "plasticity.html", page(study, found, drops))
        console.print(f"wrote {self.out / 'plasticity.html'}", soft_wrap=True)


def summary_table(study: Study, measure: str, found: list[Point]) -> Table:
    """The mean differences, a row for each line of the figure and a column for each checkpoint."""
    from rich.table import Table

    from granet.studies.plasticity_results import lines

    table = Table(title=f"{measure}: difference of test accuracy in points, by epoch of pruning")
    for name in ("distribution", "sparsity", "regeneration", "rate"):
        table.add_column(name)
    epochs = sorted(study.checkpoints)
    for epoch in epochs:
        table.add_column(str(epoch), justify="right")
    for distribution in study.distributions:
        drawn = lines(study, (point for point in found if point.distribution == distribution))
        for (sparsity, regeneration, rate), line in drawn.items():
            shown = (f"{line[epoch]:+.1f}" if epoch in line else "-" for epoch in epochs)
            table.add_row(distribution, f"{sparsity:g}", regeneration, f"{rate:g}", *shown)
    return table

"""Pruning plasticity as a table to reproduce: a reduced grid of the paper's main figure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granet.cli.markdown import markdown_table
from granet.studies.plasticity import Study
from granet.studies.plasticity_figure import title, write_figure
from granet.studies.plasticity_file import read_study
from granet.studies.plasticity_results import Point, check_kept, lines, point_of, rate_drops
from granet.studies.results import COLUMNS
from granet.training.recipe import Recipe
from granet.training.recipe_file import find_recipe
from granet.training.records import EpochRecord, read_epoch
from granet.training.rundir import run_name
from paper.prose import prose
from paper.reproducible import PAGES, Selection, write_page
from paper.results import keep, read_log, read_results
from paper.wording import heading

NAME = "plasticity"

_SAME = {"accuracy_after": "accuracy_last", "sparsity": "sparsity_achieved"}
"""Fields of a point that every row of results has under another name."""
_OWN = tuple(field.name for field in dataclasses.fields(Point) if field.name not in {*_SAME, *COLUMNS})
"""Columns that only this table has; empty in the rows of trunks."""


def paper_grid() -> Study:
    """ResNet-20 on CIFAR-10 around both drops of the learning rate; `paper_grid().recipes()` are its runs."""
    return read_study(find_recipe("studies/plasticity-cifar10-resnet20-reduced"))[0]


@dataclass(frozen=True)
class PlasticityTable:
    """The branches of a study, one cell for each."""

    study: Study

    def missing(self, done: Collection[str], out: Path) -> list[Recipe]:
        left = [branch for branch in self.study.branches() if run_name(branch.recipe) not in done]
        check_kept(left, out)
        started_from = dict.fromkeys(branch.trunk for branch in left)
        trunks = [trunk for trunk in self.study.trunks() if trunk in started_from or run_name(trunk) not in done]
        return [*trunks, *(branch.recipe for branch in left)]

    def keep(self, recipe: Recipe, out: Path, results: Path) -> None:
        branch = next((branch for branch in self.study.branches() if branch.recipe == recipe), None)
        own: dict[str, Any] = dict.fromkeys(_OWN)
        if branch is not None:
            point = point_of(branch, out)
            own = {name: getattr(point, name) for name in _OWN}
        keep(recipe, out, results, NAME, own)

    def lines(self, results: Path) -> Iterator[str]:
        done = read_results(results)
        for trunk in self.study.trunks():
            row = done.get(run_name(trunk))
            sparsity = trunk.method_fields.get("sparsity", 0.0)
            yield _line(sparsity, trunk.seed, "", f"{float(row['accuracy_last']):.2f}" if row else None)
        for branch in self.study.branches():
            row = done.get(run_name(branch.recipe))
            what = f"epoch {branch.epoch:<5}rate {branch.rate:<6g}{branch.regeneration} regeneration"
            yield _line(branch.sparsity, branch.seed, what, f"{float(row['difference']):+.2f}" if row else None)

    def write(self, results: Path, root: Path) -> Iterator[Path]:
        done = read_results(results)
        names = (run_name(branch.recipe) for branch in self.study.branches())
        found = [read_point(done[name]) for name in names if name in done]
        path = root / PAGES / f"{NAME}.md"
        yield write_page(path, page(self.study, found))
        if found:
            drops = rate_drops(logged_records(results, run_name(self.study.trunks()[0])))
            write_figure(self.study, found, drops, _title(self.study), path, [".png"])
            yield path.with_suffix(".png")


def plasticity_table(selection: Selection) -> PlasticityTable:
    """The reduced grid, with other seeds if some are chosen."""
    selection.allow(NAME, "seeds")
    study = paper_grid()
    return PlasticityTable(dataclasses.replace(study, seeds=selection.seeds or study.seeds))


def read_point(row: Mapping[str, str]) -> Point:
    """The point that `PlasticityTable.keep` put into a row of results."""
    kinds = {"float": float, "int": int, "str": str}
    named = ((field.name, kinds[str(field.type)]) for field in dataclasses.fields(Point))
    try:
        return Point(**{name: kind(row[_SAME.get(name, name)]) for name, kind in named})
    except ValueError as error:
        raise ValueError(f"{row['file']}: run={row['run']!r} has a damaged row ({error})") from error


def logged_records(results: Path, run: str) -> list[EpochRecord]:
    """The epochs in the log of a run; none if there is no such log."""
    return read_log(results, run, lambda log: [read_epoch(record) for record in log["epochs"]]) or []


def page(study: Study, points: Sequence[Point]) -> str:
    """The whole page, with its figure if anything was measured."""
    seeds = ", ".join(map(str, study.seeds))
    what = _title(study)
    parts = [heading(NAME), prose(NAME, what=what, epochs=study.continue_epochs, seeds=seeds)]
    if points:
        parts.append(f"![{what}]({NAME}.png)\n")
    for sparsity in study.sparsities:
        part = [point for point in points if point.pretrained_sparsity == sparsity]
        parts.append(f"## Pre-trained sparsity {sparsity:g}\n")
        parts.append(_table(dataclasses.replace(study, sparsities=(sparsity,)), part))
    return "\n".join(parts)


def _table(study: Study, points: Sequence[Point]) -> str:
    """Of one pre-trained sparsity."""
    epochs = sorted(study.checkpoints)
    rows = [("regeneration", "rate", *map(str, epochs))]
    before = {epoch: [point.accuracy_before for point in points if point.epoch == epoch] for epoch in epochs}
    accuracies = (f"{statistics.mean(each):.2f} %" if each else "-" for each in before.values())
    rows.append(("accuracy before", "", *accuracies))
    for (_, regeneration, rate), line in lines(study, points).items():
        shown = (f"{line[epoch]:+.2f}" if epoch in line else "-" for epoch in epochs)
        rows.append((regeneration, f"{rate:g}", *shown))
    return markdown_table(rows)


def _title(study: Study) -> str:
    return title(study, study.measures[0], study.distributions[0])


def _line(sparsity: float, seed: int, what: str, ours: str | None) -> str:
    state = "measured" if ours else "missing"
    return f"pre-trained {sparsity:<6g}seed {seed:<4}{what:<44}{state:<10}ours {ours or '-'}"

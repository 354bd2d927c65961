"""The runs of a report, each with a short name and a colour that tell it from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from granet.drawing import colours
from granet.report.read import ReportedRun
from granet.training.differences import differing, settings, shown

LONGEST = 70
"""Letters of a name that a legend has room for."""


@dataclass(frozen=True)
class ShownRun(ReportedRun):
    """A run as a report shows it."""

    name: str
    colour: str


def shown_runs(runs: Sequence[ReportedRun]) -> list[ShownRun]:
    """The runs with their names and colours."""
    looks = zip(runs, labels(runs), colours(len(runs)), strict=True)
    return [ShownRun(**vars(run), name=name, colour=colour) for run, name, colour in looks]


def labels(runs: Sequence[ReportedRun]) -> list[str]:
    """For each run its method and what tells it from the others; their folders where that is too long."""
    told = [_label(run, runs) for run in runs]
    if max(map(len, told)) > LONGEST or len(set(told)) < len(told):
        told = [run.path.resolve().name for run in runs]
    return told if len(set(told)) == len(told) else [str(run.path) for run in runs]


def _label(run: ReportedRun, runs: Sequence[ReportedRun]) -> str:
    own = settings(run.recipe)
    alike = [settings(other.recipe) for other in runs if other.recipe.method == run.recipe.method]
    told = differing([own, *alike])[0]
    what = run.recipe.method
    if "sparsity" in own:
        what += f" {own['sparsity']}"
        told.pop("sparsity", None)
    if "initial_sparsity" in told:
        what += f" from {told.pop('initial_sparsity')}"
    parts = [what, *(f"{name} {shown(value)}" for name, value in told.items())]
    if len({_place(other) for other in runs}) > 1:
        parts.insert(1, _place(run))
    return ", ".join(parts)


def _place(run: ReportedRun) -> str:
    return f"{run.recipe.model} on {run.recipe.data}"

"""Short names and colours that tell the runs of a report apart."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence

from granet.report.read import ReportedRun

# Told apart by most eyes, on white and on black.
_COLOURS = ("#2f7ed8", "#e0762f", "#2ca58d", "#b455c4", "#c9a227", "#d64550", "#6f7f94", "#8c6bd8")


def labels(runs: Sequence[ReportedRun]) -> list[str]:
    """For each run the shortest of some descriptions that is different for all of them."""
    descriptions: tuple[Callable[[ReportedRun], str], ...] = (
        _method,
        _method_from,
        lambda run: f"{_method(run)}, seed {run.recipe.seed}",
        lambda run: f"{_method(run)}, {run.recipe.model} on {run.recipe.data}",
        lambda run: f"{_method_from(run)}, {run.recipe.model} on {run.recipe.data}, seed {run.recipe.seed}",
        lambda run: run.path.resolve().name,
    )
    for describe in descriptions:
        told = [describe(run) for run in runs]
        if len(set(told)) == len(told):
            return told
    return [str(run.path) for run in runs]


def colours(count: int) -> list[str]:
    """So many colours, as `#rrggbb`."""
    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    wheel = [colorsys.hls_to_rgb(index / count, 0.5, 0.65) for index in range(count)]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in wheel]


def _method(run: ReportedRun) -> str:
    sparsity = run.recipe.method_fields.get("sparsity")
    return run.recipe.method if sparsity is None else f"{run.recipe.method} {sparsity}"


def _method_from(run: ReportedRun) -> str:
    initial = run.recipe.method_fields.get("initial_sparsity")
    return _method(run) if initial is None else f"{_method(run)} from {initial}"

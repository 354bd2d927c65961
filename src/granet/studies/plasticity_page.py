"""A plasticity study as one HTML page that needs nothing but itself. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape

from granet import __version__
from granet.report.figures import svg_figure
from granet.report.html import Cell, document, figure, number, table
from granet.studies.plasticity import Study
from granet.studies.plasticity_figure import TITLES, paint, size, title
from granet.studies.plasticity_results import Point, lines

_MEANING = {
    "plasticity": "Test accuracy after {k} epochs of continued training at the learning rate of the moment of pruning, "
    "less that before pruning.",
    "final": "Test accuracy after training the pruned net to the end with the rest of the schedule, less that of the "
    "unpruned run at its end.",
}


def page(study: Study, points: Sequence[Point], drops: Sequence[int]) -> str:
    """The whole document."""
    all_branches = len(study.branches())
    done = "" if len(points) == all_branches else f" So far {len(points)} of {all_branches} branches are finished."
    parts = [
        "<h1>Pruning plasticity</h1>",
        f'<p class="lead">{escape(study.recipe.model)} on {escape(study.recipe.data)}, seeds '
        f"{', '.join(map(str, study.seeds))}, written by granet {escape(__version__)}.{done}</p>",
        '<p class="note">A pruning rate is a share of the weights that the pre-trained net has left. Differences are '
        "in percentage points of test accuracy, means over the seeds. Above 0 the net is better than before.</p>",
    ]
    for measure in study.measures:
        parts.append(f"<h2>{escape(TITLES[measure])}</h2>")
        for distribution in study.distributions:
            chosen = [point for point in points if (point.measure, point.distribution) == (measure, distribution)]
            parts.append(_section(study, measure, distribution, chosen, drops))
    return document(f"granet plasticity: {study.recipe.model} on {study.recipe.data}", "\n".join(parts))


def _section(study: Study, measure: str, distribution: str, points: Sequence[Point], drops: Sequence[int]) -> str:
    caption = f"{title(study, measure, distribution)}. {_MEANING[measure].format(k=study.continue_epochs)}"
    described = f"{caption} The numbers are in the table below."
    drawn = partial(paint, study=study, points=points, drops=drops)
    drawing = svg_figure(drawn, size(study), f"{measure}-{distribution}", described)
    rows = [_row(study, *key, line) for key, line in lines(study, points).items()]
    heading = f"{title(study, measure, distribution)}, in points, by epoch of pruning"
    return figure(drawing, caption) + table(heading, rows)


def _row(study: Study, sparsity: float, regeneration: str, rate: float, line: Mapping[int, float]) -> dict[str, Cell]:
    heading = {
        "pre-trained sparsity": Cell(f"{sparsity:g}"),
        "regeneration": Cell(regeneration),
        "pruning rate": number(f"{rate:g}"),
    }
    cells = {f"{epoch}": number(f"{line[epoch]:+.2f}" if epoch in line else "–") for epoch in sorted(study.checkpoints)}
    return heading | cells

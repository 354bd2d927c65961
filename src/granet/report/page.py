"""The page: what is said about the runs, in which order."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING

from granet import __version__
from granet.report import draw
from granet.report.figures import svg
from granet.report.html import Cell, document, figure, number, swatch, table
from granet.report.observed import observed_section
from granet.report.read import ReportedRun
from granet.training.records import best_epoch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVE_CAPTIONS = {
    "Accuracy": "Accuracy after each epoch: test solid, validation dashed, training (running mean) dotted.",
    "Training loss": "Mean training loss of each epoch.",
    "Sparsity": "Zeros among the sparsified weights: achieved solid, asked by the schedule dotted.",
    "Learning rate": "Learning rate of each epoch's last step, on a logarithmic scale.",
}


def page(
    runs: Sequence[ReportedRun], names: Sequence[str], colours: Sequence[str], groups: Sequence[Sequence[int]]
) -> str:
    """The whole document; `groups` are the indices of runs with the same sparse layers."""
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    parts = [
        "<h1>Sparse training report</h1>",
        f'<p class="lead">{count}, written by granet {escape(__version__)}</p>',
        _runs_section(runs, names, colours),
        _curves_section(runs, names, colours),
        *observed_section(runs, names, colours),
    ]
    if groups:
        parts.append("<h2>Sparsity by layer</h2>")
    for position, group in enumerate(groups):
        chosen = (
            [runs[index] for index in group],
            [names[index] for index in group],
            [colours[index] for index in group],
        )
        parts.append(_bars(*chosen, name=f"bars{position}"))
    parts.append("<h2>Each run</h2>")
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        parts.append(_one_run(run, name, f"run{index}", opened=len(runs) <= 3))
    return document(f"granet report: {', '.join(names)}", "\n".join(parts))


def _runs_section(runs: Sequence[ReportedRun], names: Sequence[str], colours: Sequence[str]) -> str:
    rows = [_row(run, name, colour) for run, name, colour in zip(runs, names, colours, strict=True)]
    results = table("All runs", rows)
    note = (
        "The result of a run is the accuracy of its last epoch. The best epoch is the one with the best validation "
        "accuracy among those at the final sparsity; test images choose nothing. FLOPs are the multiply-adds left for "
        "a sparse kernel to do, not a measured speed."
    )
    return f'<h2>Runs</h2>\n{results}\n<p class="note">{note}</p>'


def _row(run: ReportedRun, name: str, colour: str) -> dict[str, Cell]:
    recipe, summary = run.recipe, run.summary
    last = run.records[-1] if run.records else None
    best = best_epoch(run.records) if run.records else None
    return {
        "run": Cell(name, colour=colour),
        "state": Cell(_state(run)),
        "data": Cell(recipe.data),
        "model": Cell(recipe.model),
        "method": Cell(recipe.method),
        "seed": number(str(recipe.seed)),
        "sparsity asked": number(_share(last.target_sparsity if last else None, 3)),
        "sparsity achieved": number(_share(last.sparsity if last else None, 3)),
        "test accuracy, last epoch": number(_share(last.test_accuracy if last else None, 2)),
        "test accuracy, best epoch": number(f"{_share(best.test_accuracy, 2)} (epoch {best.epoch})" if best else "–"),
        "parameters": number(f"{summary.parameters:,}" if summary else "–"),
        "nonzero": number(f"{summary.nonzero:,}" if summary else "–"),
        "FLOPs of dense": number(_share(summary.flops_ratio if summary else None, 1)),
        "seconds": number(f"{last.seconds:.1f}" if last else "–"),
        "device": Cell(str(run.environment.get("device", "–"))),
        "torch": Cell(str(run.environment.get("torch", "–"))),
    }


def _curves_section(runs: Sequence[ReportedRun], names: Sequence[str], colours: Sequence[str]) -> str:
    chips = "".join(f"<li>{swatch(colour)}{escape(name)}</li>" for name, colour in zip(names, colours, strict=True))
    figures = []
    for index, title in enumerate(draw.CURVES):
        paint = partial(_paint_curves, title, runs, colours)
        described = f"{title} by epoch. At the end: {_last_values(title, runs, names)}"
        figures.append(figure(svg(paint, (5.2, 3.2), f"curve{index}", described), _CURVE_CAPTIONS[title]))
    panels = "".join(figures)
    return f'<h2>Curves</h2>\n<ul class="legend">{chips}</ul>\n<div class="figures">\n{panels}\n</div>'


def _paint_curves(title: str, runs: Sequence[ReportedRun], colours: Sequence[str], axes: Axes) -> None:
    draw.CURVES[title](axes, runs, colours)


def _last_values(title: str, runs: Sequence[ReportedRun], names: Sequence[str]) -> str:
    """What a figure of curves shows at its right end, in words."""
    told = []
    for run, name in zip(runs, names, strict=True):
        if not run.records:
            told.append(f"{name}: nothing yet")
            continue
        last = run.records[-1]
        values = {
            "Accuracy": f"test {_share(last.test_accuracy, 2)}",
            "Training loss": f"{last.train_loss:.4g}",
            "Sparsity": _share(last.sparsity, 2),
            "Learning rate": f"{last.lr:.4g}",
        }
        told.append(f"{name}: {values[title]}")
    return "; ".join(told)


def _bars(runs: Sequence[ReportedRun], names: Sequence[str], colours: Sequence[str], name: str) -> str:
    paint = partial(draw.layer_bars, runs=runs, colours=colours)
    model = runs[0].recipe.model
    described = (
        f"Bars: sparsity of each of the {len(runs[0].layers)} sparse layers of {model}; numbers in the tables below"
    )
    caption = f"Share of zeros in each sparse layer of {model} at the end of {', '.join(names)}."
    return figure(svg(paint, (9, draw.bars_height(runs)), name, described), caption)


def _one_run(run: ReportedRun, label: str, name: str, opened: bool) -> str:
    parts = [f"<p>Folder <code>{escape(str(run.path))}</code></p>"]
    if run.summary is None:
        parts.append(f'<p class="unfinished">This run is {_state(run)}; what it has not written yet is left out.</p>')
    if run.updates:
        described = f"Heat map: density of each sparse layer after each of {len(run.updates)} mask updates"
        drawing = svg(partial(draw.layer_density, run=run), (9, 1.0 + 0.24 * len(run.layers)), name, described)
        skipped = sum(update.skipped for update in run.updates)
        caption = f"Share of active weights in each layer after each of {len(run.updates)} mask updates"
        parts.append(figure(drawing, f"{caption}, {skipped} of them skipped." if skipped else f"{caption}."))
    if run.layers:
        parts.append(_layer_table(run, label))
    elif run.summary is not None:
        parts.append("<p>All layers of this run are dense.</p>")
    settings = {key: json.dumps(value) for key, value in run.recipe.to_dict().items()}
    settings |= {key: str(value) for key, value in run.environment.items()}
    rows = [{"field": Cell(key), "value": Cell(value)} for key, value in settings.items()]
    settings_table = table(f"Settings of {label}", rows)
    parts.append(f"<details><summary>Recipe and environment</summary>{settings_table}</details>")
    opening = "<details open>" if opened else "<details>"
    return f"{opening}<summary>{escape(label)}</summary>\n" + "\n".join(parts) + "\n</details>"


def _layer_table(run: ReportedRun, label: str) -> str:
    rows = [
        _layer_row(layer.name, " × ".join(map(str, layer.shape)), layer.weights, layer.active) for layer in run.layers
    ]
    weights, active = sum(layer.weights for layer in run.layers), sum(layer.active for layer in run.layers)
    return table(f"Sparse layers of {label}", [*rows, _layer_row("all sparse layers", "", weights, active)])


def _layer_row(name: str, shape: str, weights: int, active: int) -> dict[str, Cell]:
    return {
        "layer": Cell(name),
        "shape": Cell(shape),
        "weights": number(f"{weights:,}"),
        "active": number(f"{active:,}"),
        "sparsity": number(_share((weights - active) / weights, 3)),
    }


def _state(run: ReportedRun) -> str:
    if run.summary is not None:
        return "finished"
    return f"unfinished, after epoch {len(run.records)} of {run.recipe.epochs}"


def _share(value: float | None, digits: int) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}%}"

"""The page: what is said about the runs, in which order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape

from granet import __version__
from granet.report import draw
from granet.report.budget import fixed_counts
from granet.report.curves import Curves, counted, curves_of
from granet.report.figures import svg
from granet.report.html import Cell, document, figure, number, swatch, table
from granet.report.labels import ShownRun
from granet.report.observed import observed_section
from granet.report.read import ReportedRun
from granet.report.words import diverged, share, state
from granet.training.records import best_epoch


def page(runs: Sequence[ShownRun]) -> str:
    """The whole document."""
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    parts = [
        "<h1>Sparse training report</h1>",
        f'<p class="lead">{count}, written by granet {escape(__version__)}</p>',
        _runs_section(runs),
        _curves_section(runs),
        *observed_section(runs),
    ]
    if groups := draw.same_layers(runs):
        parts.append("<h2>Sparsity by layer</h2>")
    for position, group in enumerate(groups):
        parts.append(_bars(group, f"bars{position}"))
    parts.append("<h2>Each run</h2>")
    for index, run in enumerate(runs):
        parts.append(_one_run(run, f"run{index}", opened=len(runs) <= 3))
    return document(f"granet report: {'; '.join(run.name for run in runs)}", "\n".join(parts))


def _runs_section(runs: Sequence[ShownRun]) -> str:
    results = table("All runs", [_row(run) for run in runs])
    note = (
        "The result of a run is the accuracy of its last epoch. The best epoch is the one with the best validation "
        "accuracy among those at the final sparsity; test images choose nothing. FLOPs are what is left for a sparse "
        "kernel to do, not a measured speed; those of training are what was spent so far, as a share of a whole dense "
        "training without stretch."
    )
    return f'<h2>Runs</h2>\n{results}\n<p class="note">{note}</p>'


def _row(run: ShownRun) -> dict[str, Cell]:
    recipe, summary = run.recipe, run.summary
    last = run.records[-1] if run.records else None
    best = best_epoch(run.records[recipe.branch_epoch :])  # those before it are another run's
    return {
        "run": Cell(run.name, colour=run.colour),
        "state": Cell(state(run)),
        "test accuracy, last epoch": number(share(last.test_accuracy if last else None, 2)),
        "test accuracy, best epoch": number(f"{share(best.test_accuracy, 2)} (epoch {best.epoch})" if best else "–"),
        "sparsity asked": number(share(last.target_sparsity if last else None, 3)),
        "sparsity achieved": number(share(last.sparsity if last else None, 3)),
        "parameters": number(f"{summary.parameters:,}" if summary else "–"),
        "nonzero": number(f"{summary.nonzero:,}" if summary else "–"),
        "inference FLOPs of dense": number(share(_flops(run), 1)),
        "training FLOPs of dense": number(share(last.train_flops if last else None, 1)),
        "seconds": number(f"{last.seconds:.1f}" if last else "–"),
        "data": Cell(recipe.data),
        "model": Cell(recipe.model),
        "method": Cell(recipe.method),
        "seed": number(str(recipe.seed)),
        "device": Cell(run.environment["device"]),
        "torch": Cell(run.environment["torch"]),
    }


def _flops(run: ReportedRun) -> float | None:
    """Of an inference pass at the end or, as long as the run is unfinished, after the last epoch so far."""
    if run.summary is not None:
        return run.summary.flops_ratio
    return run.records[-1].flops if run.records and counted(run.records[-1]) else None


def _curves_section(runs: Sequence[ShownRun]) -> str:
    chips = "".join(f"<li>{swatch(run.colour)}{escape(run.name)}</li>" for run in runs)
    if not any(run.records for run in runs):
        return "<h2>Curves</h2>\n<p>No epoch is finished yet.</p>"
    panels = "".join(_curves_figure(curves, runs, f"curve{index}") for index, curves in enumerate(curves_of(runs)))
    return f'<h2>Curves</h2>\n<ul class="legend">{chips}</ul>\n<div class="figures">\n{panels}\n</div>'


def _curves_figure(curves: Curves, runs: Sequence[ShownRun], name: str) -> str:
    ends = (f"{run.name}: {curves.last(run.records[-1]) if run.records else 'nothing yet'}" for run in runs)
    described = f"{curves.title} by epoch. At the end: {'; '.join(ends)}"
    return figure(svg(lambda axes: curves.paint(axes, runs), draw.PANEL, name, described), curves.caption)


def _bars(runs: Sequence[ShownRun], name: str) -> str:
    paint = partial(draw.layer_bars, runs=runs)
    model = runs[0].recipe.model
    described = (
        f"Bars: sparsity of each of the {len(runs[0].layers)} sparse layers of {model}; numbers in the tables below"
    )
    caption = f"Share of zeros in each sparse layer of {model} at the end of {'; '.join(run.name for run in runs)}."
    return figure(svg(paint, (9, draw.bars_height(runs)), name, described), caption)


def _one_run(run: ShownRun, name: str, opened: bool) -> str:
    parts = [f"<p>Folder <code>{escape(str(run.path))}</code></p>"]
    if run.summary is None:
        parts.append(f'<p class="unfinished">This run is {state(run)}; what it has not written yet is left out.</p>')
    elif (lost := diverged(run)) is not None:
        parts.append(f'<p class="unfinished">The training loss is not a finite number from epoch {lost} on.</p>')
    if run.updates:
        described = f"Heat map: density of each sparse layer after each of {len(run.updates)} mask updates"
        drawing = svg(partial(draw.layer_density, run=run), (9, draw.rows_height(run)), name, described)
        skipped = sum(update.skipped for update in run.updates)
        caption = f"Share of active weights in each layer after each of {len(run.updates)} mask updates"
        caption += ", on a square-root scale of colours"
        parts.append(figure(drawing, f"{caption}, {skipped} of them skipped." if skipped else f"{caption}."))
    if run.layers:
        parts.append(_budget(run, f"{name}-budget"))
    elif run.summary is not None:
        parts.append("<p>All layers of this run are dense.</p>")
    settings = {key: json.dumps(value) for key, value in run.recipe.to_dict().items()}
    settings |= {key: str(value) for key, value in run.environment.items()}
    rows = [{"field": Cell(key), "value": Cell(value)} for key, value in settings.items()]
    settings_table = table(f"Settings of {run.name}", rows)
    parts.append(f"<details><summary>Recipe and environment</summary>{settings_table}</details>")
    opening = "<details open>" if opened else "<details>"
    return f"{opening}<summary>{escape(run.name)}</summary>\n" + "\n".join(parts) + "\n</details>"


def _budget(run: ShownRun, name: str) -> str:
    """How the active weights are shared among the layers, beside ERK and uniform: drawn, and in exact numbers."""
    fixed = fixed_counts([layer.shape for layer in run.layers], sum(layer.active for layer in run.layers))
    described = f"Dots: density of each of the {len(run.layers)} sparse layers; numbers in the table below"
    paint = partial(draw.layer_budget, run=run, fixed=fixed)
    caption = (
        f"Share of active weights in each layer at the end, beside what {' and '.join(fixed)} would give it with as "
        "many active weights in all."
    )
    weights = [layer.weights for layer in run.layers]
    budgets = {"": [layer.active for layer in run.layers], **{f", {key}": value for key, value in fixed.items()}}
    rows = [
        {"layer": Cell(layer.name), "shape": Cell(" × ".join(map(str, layer.shape)))}
        | _counts(layer.weights, {key: active[index] for key, active in budgets.items()})
        for index, layer in enumerate(run.layers)
    ]
    total = _counts(sum(weights), {key: sum(active) for key, active in budgets.items()})
    rows.append({"layer": Cell("all sparse layers"), "shape": Cell("")} | total)
    drawing = svg(paint, (9, draw.rows_height(run)), name, described)
    return figure(drawing, caption) + "\n" + table(f"Sparse layers of {run.name}", rows)


def _counts(weights: int, budgets: Mapping[str, int]) -> dict[str, Cell]:
    """Cells of a layer with that many `weights`, of which each of the budgets leaves some active."""
    cells = {"weights": number(f"{weights:,}")}
    for suffix, active in budgets.items():
        cells[f"active{suffix}"] = number(f"{active:,}")
        cells[f"sparsity{suffix}"] = number(share((weights - active) / weights, 3))
    return cells

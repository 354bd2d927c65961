"""A table of the paper beside ours, as Markdown and as a figure; made from the result files alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from granet.files import atomic
from granet.studies.compare import Comparison, seed_spread

NAMES = {"vgg19": "VGG-19", "resnet50": "ResNet-50", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def page(table: str, comparisons: Sequence[Comparison]) -> str:
    """The whole page of one table."""
    spread = seed_spread(comparisons)
    lines = [
        f"# {table}",
        "",
        f"Made by `granet reproduce {table} --write` from the files in `results/`; do not edit.",
        "",
        "Each cell: our test accuracy of the last epoch in percent (mean over n seeds), and in parentheses the",
        "difference from the paper's number with its standard error. The paper reports the best test epoch after",
        "pruning ended, a mean over three seeds, so a small negative difference is to be expected. Where one seed was",
        "run, its deviation is taken from the cells with several; without any of those no standard error can be given.",
        "`-` is not run yet.",
        "",
    ]
    for model, data in dict.fromkeys((one.cell.model, one.cell.data) for one in comparisons):
        part = [one for one in comparisons if (one.cell.model, one.cell.data) == (model, data)]
        lines += [f"## {NAMES[model]} on {NAMES[data]}", "", *_markdown(part, spread), ""]
    return "\n".join(lines)


def headline(comparisons: Sequence[Comparison], model: str, data: str) -> str:
    """The short table of one network and data set: ours, with the paper's number beside it."""
    part = [one for one in comparisons if (one.cell.model, one.cell.data) == (model, data)]
    dense, columns, rows = _arranged(part)
    lines = [f"| {NAMES[model]}, {NAMES[data]} | {' | '.join(f'{c:.0%}' for c in columns)} |"]
    lines.append("| --- |" + " --- |" * len(columns))
    if dense is not None:
        lines.append(f"| Dense | {_short(dense)} |" + " |" * (len(columns) - 1))
    for name, cells in rows.items():
        if any(one.last for one in cells):
            lines.append(f"| {name} | {' | '.join(map(_short, cells))} |")
    return "\n".join(lines)


def figure(comparisons: Sequence[Comparison], model: str, data: str, path: Path) -> None:
    """Accuracy against sparsity, ours drawn through and the paper's dashed. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    part = [one for one in comparisons if (one.cell.model, one.cell.data) == (model, data)]
    dense, columns, rows = _arranged(part)
    drawing = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots()
    places = range(len(columns))
    measured = {name: cells for name, cells in rows.items() if any(one.last for one in cells)}
    for number, (name, cells) in enumerate(measured.items()):
        known = [(place, statistics.mean(one.last)) for place, one in zip(places, cells, strict=True) if one.last]
        axes.plot(*zip(*known, strict=True), "o-", color=f"C{number}", label=name)
        printed = [math.nan if one.cell.accuracy is None else one.cell.accuracy for one in cells]
        axes.plot(places, printed, "x--", color=f"C{number}", alpha=0.5)
    if dense is not None and dense.last:
        axes.axhline(statistics.mean(dense.last), color="0.5", linewidth=1, label="Dense")
    axes.set(
        title=f"{NAMES[model]} on {NAMES[data]}: ours (lines), the paper's (dashed)",
        xlabel="sparsity",
        ylabel="test accuracy, last epoch (%)",
        xticks=list(places),
        xticklabels=[f"{column:.0%}" for column in columns],
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as temporary:
        drawing.savefig(temporary, dpi=120, metadata={"Software": None})


def _arranged(part: Iterable[Comparison]) -> tuple[Comparison | None, list[float], dict[str, list[Comparison]]]:
    """The dense cell, the sparsities, and the cells of each row in their order."""
    part = list(part)
    dense = next((one for one in part if one.cell.sparsity == 0), None)
    columns = sorted({one.cell.sparsity for one in part if one.cell.sparsity > 0})
    rows: dict[str, list[Comparison]] = {}
    for one in part:
        if one.cell.sparsity > 0:
            rows.setdefault(one.cell.row, []).append(one)
    return dense, columns, {name: sorted(cells, key=lambda one: one.cell.sparsity) for name, cells in rows.items()}


def _markdown(part: Sequence[Comparison], spread: float | None) -> list[str]:
    dense, columns, rows = _arranged(part)
    lines = [f"| method | {' | '.join(f'{column:.0%}' for column in columns)} |", "| --- |" + " --- |" * len(columns)]
    if dense is not None:
        lines.append(f"| Dense | {_whole(dense, spread)} |" + " |" * (len(columns) - 1))
    lines += [f"| {name} | {' | '.join(_whole(one, spread) for one in cells)} |" for name, cells in rows.items()]
    return lines


def _whole(one: Comparison, spread: float | None) -> str:
    printed = one.cell.accuracy
    return in_words(one, spread) if one.last or printed is None else f"- (paper {printed:.2f})"


def in_words(one: Comparison, spread: float | None) -> str:
    """Our mean, the number of seeds, the difference from the paper if that prints a number, and the standard error."""
    if not one.last:
        return "-"
    ours = f"{statistics.mean(one.last):.2f}, n={len(one.last)}"
    error = one.standard_error(spread)
    sure = "" if error is None else f" ± {error:.2f}"
    return f"{ours}{sure}" if one.difference is None else f"{ours} ({one.difference:+.2f}{sure})"


def _short(one: Comparison) -> str:
    ours = f"{statistics.mean(one.last):.2f}" if one.last else "-"
    return ours if one.cell.accuracy is None else f"{ours} ({one.cell.accuracy:.2f})"

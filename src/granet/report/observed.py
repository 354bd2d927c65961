"""What observers saw, as figures of the page: one for each observer that any of the runs had. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from granet.report.curves import by_epoch
from granet.report.draw import PANEL, line_legend, plain
from granet.report.figures import svg
from granet.report.html import figure
from granet.report.labels import ShownRun
from granet.report.read import ReportedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES: dict[Any, str] = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dotted"}
_OTHER_SCALE = {"survival.age_at_death": "mask updates", "effective_rank.last": "rank of the last activation"}
"""Figures that are no shares in [0, 1] as their neighbours are: they have the axis on the right."""


def observed_section(runs: Sequence[ShownRun]) -> list[str]:
    """The section as one piece of markup; nothing where nothing was observed."""
    panels = []
    for index, (observer, figures) in enumerate(_figures(runs)):
        paint = partial(_paint, observer=observer, figures=figures, runs=runs)
        lines = [
            f"{name.replace('_', ' ')} {_STYLES[style]}{_side(observer, name)}"
            for name, style in zip(figures, _STYLES, strict=False)
        ]
        title = observer.replace("_", " ").capitalize()
        told = [f"{run.name}: {last}" for run in runs if (last := _last(run, observer, figures))]
        described = f"{title} by epoch. At the end: {'; '.join(told)}"
        panels.append(figure(svg(paint, PANEL, f"observed{index}", described), f"{title}: {', '.join(lines)}."))
    if not panels:
        return []
    return ['<h2>Observed</h2>\n<div class="figures">\n' + "".join(panels) + "\n</div>"]


def _figures(runs: Sequence[ReportedRun]) -> list[tuple[str, list[str]]]:
    """Each observer with the names of its figures, in the order they were first written; more than styles in parts."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for record in run.records:
            for key in record.observed or {}:
                observer, _, name = key.partition(".")
                found.setdefault(observer, {})[name] = None
    return [
        (observer, list(names)[start : start + len(_STYLES)])
        for observer, names in found.items()
        for start in range(0, len(names), len(_STYLES))
    ]


def points(run: ReportedRun, key: str) -> tuple[list[int], list[float]]:
    """The epochs that have this figure, and its values: an epoch without a mask update may have none."""
    pairs = [(record.epoch, value) for record in run.records if (value := (record.observed or {}).get(key)) is not None]
    return [epoch for epoch, _ in pairs], [value for _, value in pairs]


def _paint(axes: Axes, observer: str, figures: Sequence[str], runs: Sequence[ShownRun]) -> None:
    styles = dict(zip(figures, _STYLES, strict=False))
    other = [label for key, label in _OTHER_SCALE.items() if key in {f"{observer}.{name}" for name in figures}]
    right = axes.twinx() if other else None
    if right is not None:
        right.set_ylabel(other[0])
    shown: list[float] = []
    for run in runs:
        for name, style in styles.items():
            epochs, values = points(run, f"{observer}.{name}")
            shown += values
            side = right if right is not None and f"{observer}.{name}" in _OTHER_SCALE else axes
            side.plot(epochs, values, color=run.colour, linestyle=style, marker="o" if len(epochs) == 1 else "")
    by_epoch(axes, plain(observer.replace("_", " ")))
    if axes.get_ylim()[0] < 0 <= min(shown, default=0):
        axes.set_ylim(bottom=0)
    if len(figures) > 1:
        line_legend(axes, {plain(name.replace("_", " ")): style for name, style in styles.items()})


def _side(observer: str, name: str) -> str:
    return " (right axis)" if f"{observer}.{name}" in _OTHER_SCALE else ""


def _last(run: ReportedRun, observer: str, figures: Sequence[str]) -> str:
    """The newest value of each of these figures, in words."""
    newest = {
        key: value for record in run.records for key, value in (record.observed or {}).items() if value is not None
    }
    own = {name: newest[key] for name in figures if (key := f"{observer}.{name}") in newest}
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in own.items())

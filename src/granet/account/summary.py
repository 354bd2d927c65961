"""One view of a sparse training, as text, as HTML and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from granet import drawing
from granet.weights import Coverage

THINNEST = 3
"""The layers that the text names."""


@dataclass(frozen=True)
class Summary:
    """What a sparsifier says about itself, at one moment."""

    method: str
    step: int
    total_steps: int | None
    sparsity: float
    target: float
    final: float | None
    """What the method asks for in the end; None if it asks for nothing."""
    coverage: Coverage
    rows: Sequence[dict[str, Any]]
    """For each sparse weight its name, shape, numel, active and sparsity."""
    updates: Sequence[tuple[int, float]]
    """Step and sparsity of each update so far."""

    def __str__(self) -> str:
        return "\n".join([self.method, *(f"  {name}: {told}" for name, told in self._lines())])

    def _lines(self) -> list[tuple[str, str]]:
        steps = f"{self.step:,}" + (f" of {self.total_steps:,}" if self.total_steps else "")
        asked = "" if self.final is None else f", asked for {self.target:.4f}, in the end {self.final:.4f}"
        named = ", ".join(f"{row['name']} {row['active']:,} of {row['numel']:,}" for row in _thinnest(self.rows))
        return [
            ("step", steps),
            ("sparsity", f"{self.sparsity:.4f}{asked}"),
            ("coverage", str(self.coverage)),
            ("thinnest layers", named),
        ]

    def html(self) -> str:
        lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(told)}</td></tr>" for name, told in self._lines())
        head = "".join(f"<th>{name}</th>" for name in self.rows[0])
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
            for row in self.rows
        )
        layers = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return (
            f"<p><b>{escape(self.method)}</b></p><table>{lines}</table>"
            f"<details><summary>{len(self.rows)} layers</summary>{layers}</details>"
        )

    def plot(self, axes: Any = None) -> Any:
        """Draw the density of each layer and, in a corner, the sparsity after each update; returns the axes."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("plot() draws with matplotlib: pip install granet[plots]") from error
        density, reached = drawing.colours(2)
        with drawing.style():
            axes = axes if axes is not None else pyplot.subplots(figsize=(8, 0.22 * len(self.rows) + 1.2))[1]
            names = [row["name"] for row in self.rows]
            axes.barh(names, [1 - row["sparsity"] for row in self.rows], color=density)
            axes.invert_yaxis()
            axes.set(xlim=(0, 1), xlabel="share of weights that are active", title=f"sparsity {self.sparsity:.4f}")
            if self.updates:
                inner = axes.inset_axes((0.62, 0.08, 0.35, 0.3))
                inner.plot(*zip(*self.updates, strict=True), color=reached)
                inner.set_title("sparsity by step", fontsize="small")
                inner.tick_params(labelsize="x-small")
        return axes


def _thinnest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The layers with the smallest shares of active weights."""
    return sorted(rows, key=lambda row: -float(row["sparsity"]))[:THINNEST]


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)

"""What the figure of the README shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paper import front_figure
from paper.compare import Comparison, SeedDeviations, compare
from paper.front_figure import _panel
from paper.front_table import METHODS
from paper.results import read_results
from paper.tables import Cell, cells

GMP = Cell("cifar-main", "GMP", "vgg19", "cifar10", 0.9, 93.0)
DENSE = replace(GMP, row="Dense", sparsity=0.0, accuracy=93.5)
KNOWN = SeedDeviations(0.3, 0.3, 0.3)
COLOURS = ["C0", "C1", "C2", "C3"]


def test_a_panel_has_ours_with_errors_of_several_seeds_and_the_papers() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().add_subplot()
    at_95, at_98 = replace(GMP, sparsity=0.95, accuracy=92.5), replace(GMP, sparsity=0.98, accuracy=92.0)
    part = [
        Comparison(GMP, (92.0, 93.0, 94.0, 93.0), deviations=KNOWN),
        Comparison(at_95, (91.0,), deviations=KNOWN),
        Comparison(at_98, ()),
        Comparison(replace(GMP, row="SNIP"), (80.0,)),  # is in the other figure
        Comparison(DENSE, (93.4,), deviations=KNOWN),
    ]
    _panel(axes, part, COLOURS)
    drawn = {(line.get_color(), line.get_linestyle()): list(line.get_ydata()) for line in axes.lines}
    assert drawn["C2", "--"] == [93.0, 92.5, 92.0] and drawn["C2", "-"] == [93.0, 91.0]
    (bars,) = (container for container in axes.containers if container.has_yerr)
    (segments,) = (lines.get_segments() for lines in bars.lines[2])
    assert [high[1] - low[1] for low, high in segments] == [pytest.approx(0.3), 0.0]
    assert [line.get_ydata()[0] for line in axes.lines if list(line.get_xdata()) == [0, 1]] == [93.4, 93.5]
    assert not any(80.0 in heights for heights in drawn.values())


def test_it_is_drawn_from_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every network and data set, without the trials."""
    pytest.importorskip("matplotlib")
    parts = []
    monkeypatch.setattr(front_figure, "_panel", lambda axes, part, colours: parts.append(part))
    measured = compare(cells("cifar-main"), read_results(Path(__file__).parents[2] / "results"), (0, 1, 2))
    front_figure.front_figure(measured, tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    assert [part[0].cell.place for part in parts] == list(dict.fromkeys(one.cell.place for one in measured))
    assert all({one.cell.row for one in part} >= {*METHODS, "Dense"} for part in parts)

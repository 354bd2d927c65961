"""What a panel of accuracies shows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from paper.compare import Comparison
from paper.results_figure import _sparsities, against_sparsity
from paper.tables import Cell, cells

GMP = Cell("cifar-main", "GMP", "vgg19", "cifar10", 0.9, 93.0)
SNIP, DENSE = replace(GMP, row="SNIP"), replace(GMP, row="Dense", sparsity=0.0)
COLOURS = {"GMP": "C0", "SNIP": "C1"}


def test_a_run_that_broke_down_does_not_squeeze_the_others() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    part = [Comparison(GMP, (93.0,)), Comparison(SNIP, (92.0,))]
    part += [Comparison(replace(cell, sparsity=0.98), (last,)) for cell, last in ((GMP, 92.5), (SNIP, 30.07))]
    axes = figure.Figure().add_subplot()
    _sparsities(axes, part, COLOURS)
    assert axes.get_ylim() == pytest.approx((91.75, 93.25))  # of what is drawn, and a little more
    assert [text.get_text() for text in axes.texts] == ["SNIP: 30.1 \N{DOWNWARDS ARROW}"]


def test_a_panel_with_the_dense_network_alone() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().add_subplot()
    _sparsities(axes, [Comparison(DENSE, (93.5,)), Comparison(GMP, ())], COLOURS)
    assert [line.get_label() for line in axes.lines] == ["Dense"]


def test_two_readings_of_a_row_share_the_line_of_the_paper() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().add_subplot()
    again = replace(GMP, row="GMP, read otherwise", other_reading=True)
    other = replace(SNIP, accuracy=92.0)
    part = [Comparison(cell, (93.5,)) for cell in (GMP, again, other)]
    _sparsities(axes, part, {**COLOURS, again.row: "C2"})
    styles = [(line.get_linestyle(), line.get_color()) for line in axes.lines]
    assert styles == [("-", "C0"), ("-", "C2"), ("-", "C1"), ("--", "C0"), ("--", "C1")]


def test_rows_that_the_paper_did_not_run_itself_are_thin() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().add_subplot()
    own = replace(GMP, std=0.1)
    reading = replace(own, row="GMP, read otherwise", other_reading=True)
    unprinted = replace(GMP, row="ours alone", accuracy=None)
    colours = {**COLOURS, reading.row: "C2", unprinted.row: "C3"}
    _sparsities(axes, [Comparison(cell, (93.5,)) for cell in (own, SNIP, reading, unprinted)], colours)
    widths = {line.get_color(): line.get_linewidth() for line in axes.lines if line.get_linestyle() == "-"}
    assert widths["C0"] == widths["C3"] > widths["C1"] == widths["C2"]


@pytest.mark.parametrize(("others", "panels"), [((93.0,), 1), ((), 2)])
def test_the_dense_network_alone_has_a_panel_only_if_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[float, ...], panels: int
) -> None:
    drawn: list[object] = []
    monkeypatch.setattr("paper.results_figure._draw", lambda parts, path: drawn.extend(parts))
    part = [Comparison(DENSE, (93.5,)), Comparison(GMP, others)]
    alone = [Comparison(replace(DENSE, data="cifar100"), (73.5,)), Comparison(replace(GMP, data="cifar100"), ())]
    against_sparsity([*part, *alone], tmp_path / "figure.png")
    assert len(drawn) == panels


def test_each_row_of_the_longest_figure_has_a_colour_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[partial[None]] = []
    monkeypatch.setattr("paper.results_figure._draw", lambda parts, path: drawn.extend(parts))
    against_sparsity([Comparison(cell, (93.0,)) for cell in cells("cifar-main")], tmp_path / "figure.png")
    colours = drawn[0].keywords["colours"]
    assert len(set(colours.values())) == len(colours) == len({cell.row for cell in cells("cifar-main")} - {"Dense"})

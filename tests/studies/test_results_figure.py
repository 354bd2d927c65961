"""What a panel of accuracies shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from granet.studies.compare import Comparison
from granet.studies.results_figure import FAR, _sparsities
from granet.studies.tables import Cell

GMP = Cell("cifar-main", "GMP", "vgg19", "cifar10", 0.9, 93.0)
SNIP, DENSE = replace(GMP, row="SNIP"), replace(GMP, row="Dense", sparsity=0.0)
COLOURS = {"GMP": "C0", "SNIP": "C1"}


def test_a_run_that_broke_down_does_not_squeeze_the_others() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    part = [Comparison(GMP, (93.0,)), Comparison(SNIP, (92.0,))]
    part += [Comparison(replace(cell, sparsity=0.98), (last,)) for cell, last in ((GMP, 92.5), (SNIP, 30.07))]
    axes = figure.Figure().add_subplot()
    _sparsities(axes, part, COLOURS)
    assert axes.get_ylim()[0] > 92.0 - FAR
    assert [text.get_text() for text in axes.texts] == ["SNIP: 30.1 \N{DOWNWARDS ARROW}"]


def test_a_panel_with_the_dense_network_alone() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().add_subplot()
    _sparsities(axes, [Comparison(DENSE, (93.5,)), Comparison(GMP, ())], COLOURS)
    assert [line.get_label() for line in axes.lines] == ["Dense"]

"""What the figures show is what the runs recorded."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from granet.report.curves import Curves, curves_of
from granet.report.draw import layer_budget
from granet.report.read import ReportedRun, read_run
from granet.report.words import short
from granet.training import Recipe

figure = pytest.importorskip("matplotlib.figure")
Make = Callable[..., Path]


def drawn(curves: Curves, runs: list[ReportedRun]) -> list[tuple[list[float], list[float]]]:
    axes = figure.Figure().subplots()
    curves.paint(axes, runs, ["#000000"] * len(runs))
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]


def test_flops_by_epoch(make_run: Make) -> None:
    granet = read_run(make_run("a", flops=[(1.0, 0.25), (0.5, 0.4), (0.2, 0.5)]))
    before = read_run(make_run("b"))
    stretched = read_run(make_run("c", Recipe(seed=1).dense_twin(), flops=[(1.0, 0.5), (1.0, 1.0), (1.0, 1.5)]))
    now, spent = curves_of([granet, before, stretched])[4:]
    assert (now.title, spent.title) == ("FLOPs during training", "Training FLOPs so far")
    first, second, third = drawn(now, [granet, before, stretched])
    assert first == ([1, 2, 3], [100, 50, 20]) and third == ([1, 2, 3], [100, 100, 100])
    assert all(map(math.isnan, second[1]))  # not the default of 100 %
    first, second, third = drawn(spent, [granet, before, stretched])
    assert first == ([1, 2, 3], [25, 40, 50]) and third == ([1, 2, 3], [50, 100, 150])
    assert all(map(math.isnan, second[1]))


def test_runs_of_before_have_no_figures_of_flops(make_run: Make) -> None:
    runs = [read_run(make_run("a")), read_run(make_run("b", epochs=0, finished=False))]
    assert [curves.title for curves in curves_of(runs)] == ["Accuracy", "Training loss", "Sparsity", "Learning rate"]


def test_a_budget_beside_fixed_ones(make_run: Make) -> None:
    axes = figure.Figure().subplots()
    layer_budget(axes, read_run(make_run()), "#2f7ed8", {"ERK": [18, 40], "uniform": [9, 80]})
    shown = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert shown == {
        "ERK": ([0.5, 0.25], [0, 1]),
        "uniform": ([0.25, 0.5], [0, 1]),
        "this run": ([0.75, 0.1375], [0, 1]),
    }
    assert [text.get_text() for text in axes.get_yticklabels()] == ["features.0.weight", "classifier.weight"]
    assert axes.get_xlim() == (0, 1) and axes.get_ylim()[0] > axes.get_ylim()[1]  # the first layer on top


def test_a_loss_that_is_lost_ends_in_a_cross(make_run: Make) -> None:
    loss = curves_of([])[1]
    well = read_run(make_run())
    lost = replace(well, records=[*well.records[:2], replace(well.records[2], train_loss=math.inf)])
    curve, cross, other = drawn(loss, [lost, well])
    assert curve[1][:2] == [1, 0.5] and math.isnan(curve[1][2]) and cross == ([2], [0.5])
    assert other == ([1, 2, 3], [1, 1 / 2, 1 / 3])


@pytest.mark.parametrize(("losses", "scale"), [((5.0, 1.0, 0.01), "linear"), ((5.0, 1.0, 0.001), "log")])
def test_losses_far_apart_are_shown_on_a_logarithmic_scale(
    make_run: Make, losses: tuple[float, ...], scale: str
) -> None:
    run = read_run(make_run())
    records = [replace(record, train_loss=loss) for record, loss in zip(run.records, losses, strict=True)]
    axes = figure.Figure().subplots()
    curves_of([])[1].paint(axes, [replace(run, records=records)], ["#000000"])
    assert axes.get_yscale() == scale


def test_lines_on_one_another_show_all_of_them(make_run: Make) -> None:
    runs = [read_run(make_run(name)) for name in "abc"]
    axes = figure.Figure().subplots()
    curves_of(runs)[3].paint(axes, runs, ["#000000"] * 3)
    widths = [line.get_linewidth() for line in axes.lines]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == 3


def test_a_name_too_long_for_a_figure_loses_its_middle() -> None:
    assert short("a" * 40) == "a" * 40
    assert short("begin" + "x" * 50 + "end") == "begin" + "x" * 14 + "…" + "x" * 16 + "end"

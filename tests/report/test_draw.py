"""What the figures show is what the runs recorded."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from granet.report.curves import Curves, curves_of
from granet.report.draw import layer_bars, layer_budget, layer_density
from granet.report.labels import shown_runs
from granet.report.read import ReportedRun, read_run
from granet.report.words import short
from granet.training import Recipe

figure = pytest.importorskip("matplotlib.figure")
Make = Callable[..., Path]


def drawn(curves: Curves, runs: list[ReportedRun]) -> list[tuple[list[float], list[float]]]:
    axes = figure.Figure().subplots()
    curves.paint(axes, shown_runs(runs))
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
    assert [curves.last(granet.records[-1]) for curves in (now, spent)] == ["20.0%", "50.0%"]
    assert [curves.last(before.records[-1]) for curves in (now, spent)] == ["not recorded"] * 2
    assert all(map(math.isnan, second[1]))


def test_accuracies_sparsities_and_learning_rates_by_epoch(make_run: Make) -> None:
    run = read_run(make_run())
    rates, asked, achieved = (0.1, 0.1, 0.01), (0.5, 0.7, 0.75), (0.25, 0.5, 0.75)
    values = zip(run.records, rates, asked, achieved, strict=True)
    records = [replace(one, lr=lr, target_sparsity=goal, sparsity=now) for one, lr, goal, now in values]
    run = replace(run, records=(*records[:2], replace(records[2], val_accuracy=None)))
    accuracy, _, sparsity, rate = curves_of([run])
    train, validation, test = drawn(accuracy, [run])
    assert train == ([1, 2, 3], [50, 50, 50])
    assert validation[1][:2] == pytest.approx([50, 60]) and math.isnan(validation[1][2])
    assert test[1] == pytest.approx([61, 62, 63])
    assert [values for _, values in drawn(sparsity, [run])] == [[50, 70, 75], [25, 50, 75]]
    assert drawn(rate, [run]) == [([1, 2, 3], [0.1, 0.1, 0.01])]
    told = [curves.last(replace(records[1], val_accuracy=0.1)) for curves in (accuracy, sparsity, rate)]
    assert told == ["test 62.00%", "50.00%", "0.1"]


def test_sparsities_of_layers_side_by_side(make_run: Make) -> None:
    run = read_run(make_run())
    other = replace(run, layers=tuple(replace(layer, active=0) for layer in run.layers))
    axes = figure.Figure().subplots()
    layer_bars(axes, shown_runs([run, other]))
    first, second = axes.containers
    assert [bar.get_width() for bar in first] == [25, 86.25] and [bar.get_width() for bar in second] == [100, 100]
    places = [[bar.get_y() + bar.get_height() / 2 for bar in bars] for bars in (first, second)]
    assert places == [pytest.approx([-0.2, 0.8]), pytest.approx([0.2, 1.2])]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first layer, and in it the first run, on top


def test_densities_of_layers_after_each_update(make_run: Make) -> None:
    axes = figure.Figure().subplots()
    layer_density(axes, read_run(make_run()))
    (image,) = axes.images
    assert image.get_array().tolist() == [[1.0, 0.75], [1.0, 0.1375]]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["20", "40"]


def test_runs_of_before_have_no_figures_of_flops(make_run: Make) -> None:
    runs = [read_run(make_run("a")), read_run(make_run("b", epochs=0, finished=False))]
    assert [curves.title for curves in curves_of(runs)] == ["Accuracy", "Training loss", "Sparsity", "Learning rate"]


def test_a_budget_beside_fixed_ones(make_run: Make) -> None:
    axes = figure.Figure().subplots()
    (run,) = shown_runs([read_run(make_run())])
    layer_budget(axes, run, {"ERK": [18, 40], "uniform": [9, 80]})
    shown = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert shown == {
        "ERK": ([0.5, 0.25], [0, 1]),
        "uniform": ([0.25, 0.5], [0, 1]),
        "this run": ([0.75, 0.1375], [0, 1]),
    }
    assert [text.get_text() for text in axes.get_yticklabels()] == ["features.0.weight", "classifier.weight"]
    assert axes.xaxis.get_transform().transform([0.0, 0.25, 1.0]).tolist() == [0, 0.5, 1]  # of square roots
    assert axes.get_xlim() == (0, 1) and axes.get_ylim()[0] > axes.get_ylim()[1]  # the first layer on top


def test_a_loss_that_is_lost_ends_in_a_cross(make_run: Make) -> None:
    loss = curves_of([])[1]
    well = read_run(make_run())
    lost = replace(well, records=[*well.records[:2], replace(well.records[2], train_loss=math.inf)])
    curve, cross, other = drawn(loss, [lost, well])
    assert curve[1][:2] == [1, 0.5] and math.isnan(curve[1][2]) and cross == ([2], [0.5])
    assert other == ([1, 2, 3], [1, 1 / 2, 1 / 3])


@pytest.mark.parametrize(
    ("losses", "scale"),
    [((5.0, 1.0, 0.01), "linear"), ((5.0, 1.0, 0.001), "log"), ((5.0, 1.0, 0.0), "linear")],  # no logarithm of zero
)
def test_losses_far_apart_are_shown_on_a_logarithmic_scale(
    make_run: Make, losses: tuple[float, ...], scale: str
) -> None:
    run = read_run(make_run())
    records = [replace(record, train_loss=loss) for record, loss in zip(run.records, losses, strict=True)]
    axes = figure.Figure().subplots()
    curves_of([])[1].paint(axes, shown_runs([replace(run, records=records)]))
    assert axes.get_yscale() == scale


def test_a_single_epoch_is_a_point_and_a_rate_holds_up_to_its_epoch(make_run: Make) -> None:
    for epochs, marker in ((1, "o"), (3, "")):
        axes = figure.Figure().subplots()
        curves_of([])[3].paint(axes, shown_runs([read_run(make_run(f"{epochs}", epochs=epochs))]))
        (line,) = axes.lines
        assert (line.get_marker(), line.get_drawstyle()) == (marker, "steps-pre")


def test_lines_on_one_another_show_all_of_them(make_run: Make) -> None:
    runs = [read_run(make_run(name)) for name in "abc"]
    axes = figure.Figure().subplots()
    curves_of(runs)[3].paint(axes, shown_runs(runs))
    widths = [line.get_linewidth() for line in axes.lines]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == 3


def test_a_name_too_long_for_a_figure_loses_its_middle() -> None:
    assert short("a" * 40) == "a" * 40
    assert short("begin" + "x" * 50 + "end") == "begin" + "x" * 14 + "…" + "x" * 16 + "end"

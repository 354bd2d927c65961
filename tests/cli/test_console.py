"""The progress bar, and the table of a sweep."""

import io
from dataclasses import replace

from rich.console import Console

from granet.cli.console import SweepView, create_console, results_table, sweep_table, watch
from granet.studies.jobs import Event
from granet.training import EpochRecord, Recipe, Summary

RECORD = EpochRecord(1, 19, 0.5, 0.1, 0.3, 0.9, None, 0.91, 0.5, 0.5)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shown_after(epochs: list[int], of: int) -> str:
    """The bar when a run that takes 90 seconds for an epoch is left after these."""
    clock = Clock()
    text = io.StringIO()

    def train():
        for epoch in epochs:
            clock.now += 90
            yield replace(RECORD, epoch=epoch)

    console = Console(file=text, width=120, force_terminal=True, color_system=None, get_time=clock)
    records = watch(console, "granet", train(), of)
    for _ in epochs:
        next(records)
    records.close()
    return [line for line in text.getvalue().splitlines() if "epoch" in line][-1]


def test_the_time_left_is_that_of_the_epochs_left() -> None:
    """Also with epochs longer than the half minute that rich looks back by itself."""
    bar = shown_after([1, 2, 3], of=11)
    assert "epoch 3/11  test 91.0%  sparsity 50.0%" in bar
    assert "0:12:00 left" in bar  # 8 epochs of 90 seconds


def test_a_resumed_run_is_not_taken_for_a_fast_one() -> None:
    assert "-:--:-- left" in shown_after([8], of=11)
    assert "0:01:30 left" in shown_after([8, 9, 10], of=11)


def test_a_finished_run_says_how_long_it_took() -> None:
    assert "0:04:30 taken" in shown_after([1, 2, 3], of=3)


def test_a_run_without_a_best_epoch_has_none_beside_those_of_others() -> None:
    row = {"data": "cifar10", "model": "vgg19", "method": "gmp", "sparsity_achieved": 0.9, "seed": 0, "seconds": 1.0}
    row |= {"accuracy_last": 93.0, "accuracy_best": None, "test_flops": 0.2, "settings": ""}
    table = sweep_table([row | {"run": "a"}, row | {"run": "b", "accuracy_best": 94.0}])
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["last %"] == ["93.00", "93.00"] and columns["best %*"] == ["-", "94.00"]


def test_settings_have_a_column_where_runs_differ_in_some() -> None:
    row = {"run": "a", "data": "digits", "model": "digits_net", "method": "gmp", "sparsity_achieved": 0.9, "seed": 0}
    row |= {"seconds": 1.0, "accuracy_last": 93.0, "accuracy_best": None, "test_flops": 0.2, "settings": ""}
    told = sweep_table([row, row | {"settings": "every=100"}])
    assert [list(column.cells) for column in told.columns if column.header == "settings"] == [["", "every=100"]]
    assert "settings" not in [column.header for column in sweep_table([row]).columns]


def test_every_figure_of_a_run_has_its_row() -> None:
    run = Summary(0.911, 0.922, 7, 0.933, 0.944, 5000, 280, 0.355, 66.6, 0.477)
    no_validation = replace(run, best_test_accuracy=None, best_epoch=None, train_flops=None)
    figures, without = (list(column.cells) for column in results_table({"a": run, "b": no_validation}).columns[1:])
    assert figures == ["91.10%", "92.20% (epoch 7)", "93.300%", "94.400%", "280", "5,000", "35.5%", "47.7%", "66.6"]
    assert [cell for cell, other in zip(without, figures, strict=True) if cell != other] == ["-", "-"]
    never_right = results_table({"a": replace(run, best_test_accuracy=0.0)})
    assert list(never_right.columns[1].cells)[1] == "0.00% (epoch 7)"


def test_without_a_validation_part_there_is_no_best_epoch() -> None:
    run = Summary(0.911, None, None, 0.9, 0.9, 5000, 500, 0.355, 66.6, 0.477)
    table = results_table({"a": run, "b": run})
    assert list(table.columns[0].cells)[:2] == ["test accuracy, last epoch", "sparsity asked"] and not table.caption
    assert list(table.columns[1].cells)[:2] == ["91.10%", "90.000%"]
    row = {"run": "a", "data": "cifar100", "model": "vgg19", "method": "gmp", "sparsity_achieved": 0.9, "seed": 0}
    row |= {"seconds": 1.0, "accuracy_last": 93.0, "accuracy_best": None, "test_flops": 0.2, "settings": ""}
    swept = sweep_table([row, row])
    assert [column.header for column in swept.columns] == ["method", "sparsity", "seed", "last %", "FLOPs", "seconds"]
    assert [next(iter(column.cells)) for column in swept.columns] == ["gmp", "90.00%", "0", "93.00", "0.200", "1"]
    assert swept.caption == "FLOPs of inference, dense = 1"


def test_shares_of_the_full_width_network_are_called_so() -> None:
    run = Summary(0.9, 0.9, 1, 0.9, 0.9, 100, 10, 0.1, 1.0, 0.2)
    for scaled, dense in ((False, "dense"), (True, "the full-width dense network")):
        labels = list(results_table({"a": run}, scaled).columns[0].cells)
        assert labels[-3:-1] == [f"inference FLOPs of {dense}", f"training FLOPs of {dense}"]
    row = {"run": "a", "data": "digits", "model": "resnet20", "method": "gmp", "sparsity_achieved": 0.9, "seed": 0}
    row |= {"seconds": 1.0, "accuracy_last": 93.0, "accuracy_best": 92.0, "test_flops": 0.2, "settings": ""}
    best = "* by validation accuracy, among epochs at the final sparsity"
    assert sweep_table([row]).caption == f"{best}; FLOPs of inference, dense = 1"
    assert sweep_table([row], scaled=True).caption == f"{best}; FLOPs of inference, full-width dense network = 1"


def test_a_sweep_has_a_bar_for_all_runs_and_one_for_each_that_trains() -> None:
    console, recipe = create_console(), Recipe(epochs=4, stretch=2.5)
    console.file = text = io.StringIO()

    def bars() -> dict[str, tuple[float, float | None]]:
        return {task.fields["name"]: (task.completed, task.total) for task in view._progress.tasks}

    with SweepView(console, 3) as view:
        view.show("a", Event(recipe, replace(RECORD, epoch=2)))
        view.show("b", Event(recipe, RECORD))
        assert bars() == {"all": (0, 3), "a": (2, 10), "b": (1, 10)} and view._progress.live.is_started
        view.show("a", Event(recipe))
        view.show("c", Event(recipe, elsewhere=True))
        assert bars() == {"all": (2, 3), "b": (1, 10)}
    assert not view._progress.live.is_started  # which would hide the cursor for good
    ended = [line for line in text.getvalue().splitlines() if line.startswith(("a ", "b ", "c "))]
    assert ended[:2] == ["a done", "c left to another process, which trains it or its parent"]

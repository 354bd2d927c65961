"""How the command line looks: progress while a run trains, and the tables. Needs rich."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.table import Column, Table

if TYPE_CHECKING:
    from granet.methods import MethodInfo
    from granet.studies.jobs import Event
    from granet.training import EpochRecord, Summary

_FLAGS = {
    "needs_batches": "needs\nbatches",
    "needs_trained": "needs\na run",
    "regrows": "regrows",
    "takes_pattern": "takes\npatterns",
    "exact_target": "exact\ntarget",
}
_BEST = "* by validation accuracy, among epochs at the final sparsity"
_FULL_WIDTH = "full-width dense network"


def create_console() -> Console:
    """A console that shows text as it is: what looks like markup or an emoji is part of somebody's path or name."""
    return Console(markup=False, emoji=False, highlight=False)


def getting_ready(console: Console, name: str) -> Status:
    """A line, in a terminal, while a run comes to its first step: the search of `sis` or compiling takes minutes."""
    return console.status(f"{name:<10} getting ready for the first step")


def watch(console: Console, name: str, records: Iterator[EpochRecord], epochs: int) -> Iterator[EpochRecord]:
    """Hand `records` on, with a bar that says where the run stands; after the last one the bar stays as one line."""
    columns = (
        TextColumn("{task.fields[name]:<10}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("epoch {task.completed:.0f}/{task.total:.0f}  {task.description}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[time]}"),
    )
    # The time left is estimated from all epochs so far: rich's own 30 seconds may not hold two of them.
    with Progress(*columns, console=console, speed_estimate_period=math.inf) as progress:
        task = progress.add_task("", total=epochs, name=name, time="left")
        for record in records:
            state = f"test {record.test_accuracy:.1%}  sparsity {record.sparsity:.1%}"
            time = "left" if record.epoch < epochs else "taken"
            progress.update(task, completed=record.epoch, description=state, time=time)
            yield record


def results_table(summaries: Mapping[str, Summary], scaled: bool = False) -> Table:
    """One column per run, one row per figure; of the best epoch if there is a validation part to choose it by.

    If a network is ``scaled``, to another width than 1, shares of dense are not those of a network of its own width.
    """
    table = Table(title="Results")
    table.add_column("")
    for name in summaries:
        table.add_column(name, justify="right")
    runs = summaries.values()
    table.add_row("test accuracy, last epoch", *(f"{run.test_accuracy:.2%}" for run in runs))
    if any(run.best_test_accuracy is not None for run in runs):
        table.add_row("test accuracy, best epoch*", *(_best(run) for run in runs))
        table.caption = _BEST
    table.add_row("sparsity asked", *(f"{run.sparsity_asked:.3%}" for run in runs))
    table.add_row("sparsity achieved", *(f"{run.sparsity:.3%}" for run in runs))
    table.add_row("parameters, nonzero", *(f"{run.nonzero:,}" for run in runs))
    table.add_row("parameters, all", *(f"{run.parameters:,}" for run in runs))
    dense = f"the {_FULL_WIDTH}" if scaled else "dense"
    table.add_row(f"inference FLOPs of {dense}", *(f"{run.flops_ratio:.1%}" for run in runs))
    table.add_row(f"training FLOPs of {dense}", *(_share(run.train_flops) for run in runs))
    table.add_row("seconds", *(f"{run.seconds:.1f}" for run in runs))
    return table


def methods_table(methods: Iterable[MethodInfo]) -> Table:
    """When each method chooses its masks, what it needs and what it can do; fits 100 columns."""
    table = Table(title="Methods")
    table.add_column("method", no_wrap=True)
    table.add_column("masks chosen")
    for heading in _FLAGS.values():
        table.add_column(heading, justify="center", no_wrap=True)
    for info in methods:
        table.add_row(info.name, info.when, *("yes" if getattr(info, flag) else "-" for flag in _FLAGS))
    table.caption = "a run: a finished first one; without an exact target, other settings decide the sparsity"
    return table


class SweepView:
    """Where a sweep stands: a bar for all runs, and one for each that is training."""

    def __init__(self, console: Console, runs: int) -> None:
        columns = (
            TextColumn("{task.fields[name]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}  {task.description}"),
            TimeRemainingColumn(),
        )
        self._console = console
        self._progress = Progress(*columns, console=console, expand=True)
        self._all = self._progress.add_task("", total=runs, name="all", unit="runs")
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> SweepView:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def show(self, name: str, event: Event) -> None:
        """Draw one event; a run that ended becomes a line above the bars."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task("", total=event.recipe.total_epochs, name=name, unit="epochs")
        if event.record is not None:
            state = f"test {event.record.test_accuracy:.1%}"
            self._progress.update(self._tasks[name], completed=event.record.epoch, description=state)
            return
        self._progress.remove_task(self._tasks.pop(name))
        self._progress.advance(self._all)
        if event.elsewhere:
            how = "left to another process, which trains it or its parent"
        else:
            how = "done" if event.error is None else f"failed: {event.error}"
        self._console.print(f"{name} {how}", soft_wrap=True)


def split_alike(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of those names in which nothing differs, for a title, and the other names, for columns."""
    alike = {name: rows[0][name] for name in names if len({row[name] for row in rows}) == 1}
    return alike, [name for name in names if name not in alike]


def titled(title: str, values: Mapping[str, Any]) -> str:
    """A table's title, with what holds for all of its rows."""
    return " ".join([title, *(f"{name}={value}" for name, value in values.items())])


def sweep_table(rows: Sequence[Mapping[str, Any]], scaled: bool = False) -> Table:
    """One row per finished run; a column in which nothing differs goes into the title.

    The best epoch has a column if any run has a validation part to choose it by. ``scaled`` as for the table of a run.
    """
    told, words = split_alike(rows, ("data", "model"))
    words += ["method", "settings"] if any(row["settings"] for row in rows) else ["method"]
    table = Table(title=titled("Results", told))
    for name in words:
        table.add_column(name, overflow="fold")  # cut short, settings would look alike again
    validated = any(row["accuracy_best"] is not None for row in rows)
    chosen = ["best %*"] if validated else []
    for name in ("sparsity", "seed", "last %", *chosen, "FLOPs", "seconds"):
        table.add_column(name, justify="right")
    for row in rows:
        best = ["-" if row["accuracy_best"] is None else f"{row['accuracy_best']:.2f}"] if validated else []
        figures = f"{row['sparsity_achieved']:.2%}", str(row["seed"]), f"{row['accuracy_last']:.2f}", *best
        table.add_row(*(row[name] for name in words), *figures, f"{row['test_flops']:.3f}", f"{row['seconds']:.0f}")
    flops = f"FLOPs of inference, {_FULL_WIDTH if scaled else 'dense'} = 1"
    table.caption = f"{_BEST}; {flops}" if validated else flops
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _best(run: Summary) -> str:
    return "-" if run.best_test_accuracy is None else f"{run.best_test_accuracy:.2%} (epoch {run.best_epoch})"

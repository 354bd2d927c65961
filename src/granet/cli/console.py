"""How the command line looks: progress while a run trains, and the tables. Needs rich."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from granet.methods import MethodInfo
from granet.training import EpochRecord, Summary

_FLAGS = ("dense_to_sparse", "sparse_to_sparse", "changes_masks", "regrows", "needs_gradient")


def watch(console: Console, name: str, records: Iterator[EpochRecord], epochs: int) -> Iterator[EpochRecord]:
    """Hand `records` on, with a bar that says where the run stands; after the last one the bar stays as one line."""
    columns = (
        TextColumn(f"{name:<10}"),
        BarColumn(bar_width=20),
        TextColumn("epoch {task.completed:.0f}/{task.total:.0f}  {task.description}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[time]}"),
    )
    # The time left is estimated from all epochs so far: rich's own 30 seconds may not hold two of them.
    with Progress(*columns, console=console, speed_estimate_period=math.inf) as progress:
        task = progress.add_task("", total=epochs, time="left")
        for record in records:
            state = f"test {record.test_accuracy:.1%}  sparsity {record.sparsity:.1%}"
            time = "left" if record.epoch < epochs else "taken"
            progress.update(task, completed=record.epoch, description=state, time=time)
            yield record


def results_table(summaries: Mapping[str, Summary]) -> Table:
    """One column per run, one row per figure."""
    table = Table(title="Results")
    table.add_column("")
    for name in summaries:
        table.add_column(name, justify="right")
    runs = summaries.values()
    table.add_row("test accuracy, last epoch", *(f"{run.test_accuracy:.2%}" for run in runs))
    table.add_row("test accuracy, best epoch*", *(_best(run) for run in runs))
    table.add_row("sparsity asked", *(f"{run.sparsity_asked:.3%}" for run in runs))
    table.add_row("sparsity achieved", *(f"{run.sparsity:.3%}" for run in runs))
    table.add_row("parameters, nonzero", *(f"{run.nonzero:,}" for run in runs))
    table.add_row("parameters, all", *(f"{run.parameters:,}" for run in runs))
    table.add_row("inference FLOPs of dense", *(f"{run.flops_ratio:.1%}" for run in runs))
    table.add_row("seconds", *(f"{run.seconds:.1f}" for run in runs))
    table.caption = "* by validation accuracy, among epochs at the final sparsity"
    return table


def methods_table(methods: Iterable[MethodInfo]) -> Table:
    """One row of capability flags per method."""
    table = Table(title="Methods")
    table.add_column("method", no_wrap=True)
    for flag in _FLAGS:
        first, _, rest = flag.partition("_")
        table.add_column(f"{first}\n{rest.replace('_', ' ')}", justify="center", no_wrap=True)
    for info in methods:
        table.add_row(info.name, *("yes" if getattr(info, flag) else "-" for flag in _FLAGS))
    return table


def _best(run: Summary) -> str:
    return "-" if run.best_test_accuracy is None else f"{run.best_test_accuracy:.2%} (epoch {run.best_epoch})"

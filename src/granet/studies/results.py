"""The results of finished runs as a table: one row a run, read from the run folders."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from granet.files import write_text
from granet.training.recipe import Recipe
from granet.training.records import best_on_test, largest_fall
from granet.training.rundir import RunDir

COLUMNS = (
    "method",
    "model",
    "data",
    "sparsity_asked",
    "sparsity_achieved",
    "seed",
    "accuracy_last",
    "accuracy_best",
    "accuracy_as_paper",
    "largest_fall",
    "train_flops",
    "test_flops",
    "seconds",
    "epochs",
    "device",
    "torch",
    "commit",
    "run",
)


def row_of(recipe: Recipe, out: Path) -> dict[str, Any] | None:
    """The result of a run, if it is finished: accuracies in percent, FLOPs as shares of the dense network's."""
    folder = RunDir.find(out, recipe)
    summary = folder.summary
    if summary is None:
        return None
    environment = folder.environment
    if not (records := folder.records[recipe.branch_epoch :]):
        raise ValueError(f"{folder.path / 'metrics.jsonl'}: must have the epochs of the run")
    best, as_paper = summary.best_test_accuracy, best_on_test(records)
    return {
        "method": recipe.method,
        "model": recipe.model if recipe.width == 1 else f"{recipe.model} x {recipe.width:g}",
        "data": recipe.data,
        "sparsity_asked": recipe.method_fields.get("sparsity", round(summary.sparsity_asked, 8)),
        "sparsity_achieved": round(summary.sparsity, 8),
        "seed": recipe.seed,
        "accuracy_last": round(100 * summary.test_accuracy, 3),
        "accuracy_best": None if best is None else round(100 * best, 3),
        "accuracy_as_paper": round(100 * as_paper.test_accuracy, 3),
        "largest_fall": round(100 * largest_fall(records), 2),
        "train_flops": None if summary.train_flops is None else round(summary.train_flops, 5),
        "test_flops": round(summary.flops_ratio, 5),
        "seconds": round(summary.seconds, 1),
        "epochs": recipe.total_epochs,
        "device": environment["device"],
        "torch": environment["torch"],
        "commit": environment.get("commit", ""),
        "run": folder.path.name,
    }


def write_csv(path: Path, table: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """The rows under these columns, whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(table)
    write_text(path, text.getvalue())

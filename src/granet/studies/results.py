"""The results of finished runs as a table: one row a run, read from the run folders."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from granet.files import atomic
from granet.training.recipe import Recipe
from granet.training.rundir import LAYERS, UPDATES, RunDir

COLUMNS = (
    "method",
    "model",
    "data",
    "sparsity_asked",
    "sparsity_achieved",
    "seed",
    "accuracy_last",
    "accuracy_best",
    "train_flops",
    "test_flops",
    "seconds",
    "epochs",
    "device",
    "torch",
    "commit",
    "run",
)


def rows(recipes: Iterable[Recipe], out: Path) -> list[dict[str, Any]]:
    """What each finished run came to: accuracies in percent, FLOPs as a share of the dense network's."""
    found = []
    for recipe in recipes:
        folder = RunDir.find(out, recipe)
        summary = folder.summary
        if summary is None:
            continue
        environment = json.loads((folder.path / "config.json").read_text(encoding="utf-8"))["environment"]
        best = summary.best_test_accuracy
        found.append(
            {
                "method": recipe.method,
                "model": recipe.model,
                "data": recipe.data,
                "sparsity_asked": recipe.method_fields.get("sparsity", 0.0),
                "sparsity_achieved": round(summary.sparsity, 8),
                "seed": recipe.seed,
                "accuracy_last": round(100 * summary.test_accuracy, 3),
                "accuracy_best": None if best is None else round(100 * best, 3),
                "train_flops": None if summary.train_flops is None else round(summary.train_flops, 5),
                "test_flops": round(summary.flops_ratio, 5),
                "seconds": round(summary.seconds, 1),
                "epochs": recipe.total_epochs,
                "device": environment["device"],
                "torch": environment["torch"],
                "commit": environment.get("commit", ""),
                "run": folder.path.name,
            }
        )
    return found


def log(folder: RunDir) -> dict[str, Any]:
    """All that is worth keeping of a finished run, without its weights."""

    def lines(name: str) -> list[Any]:
        path = folder.path / name
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    config = json.loads((folder.path / "config.json").read_text(encoding="utf-8"))
    layers = folder.path / LAYERS
    return {
        **config,
        "summary": json.loads((folder.path / "summary.json").read_text(encoding="utf-8")),
        "layers": json.loads(layers.read_text(encoding="utf-8")) if layers.exists() else [],
        "epochs": lines("metrics.jsonl"),
        "updates": lines(UPDATES),
    }


def write_csv(path: Path, table: Iterable[dict[str, Any]]) -> None:
    """The rows under the columns of this module, whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(table)
    with atomic(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")

"""What is kept of finished runs in `results/`: a row for each in the file of its table, and a log."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from granet.files import read_json, write_text
from granet.locks import locked
from granet.methods import former_names
from granet.studies.results import COLUMNS, row_of, write_csv
from granet.training.recipe import Recipe
from granet.training.rundir import LAYERS, UPDATES, RunDir, read_lines

T = TypeVar("T")

_LARGEST = {
    **dict.fromkeys(("accuracy_last", "accuracy_best", "accuracy_as_paper", "largest_fall"), 100.0),
    **dict.fromkeys(("sparsity_asked", "sparsity_achieved"), 1.0),
    **dict.fromkeys(("train_flops", "test_flops", "seconds"), math.inf),
}
"""Columns of numbers from 0 to this."""
_MAY_LACK = ("accuracy_best", "train_flops")
"""A number that some runs do not have."""
_FORMER = {"scope": "distribution"}
"""Former names of columns."""


def log(folder: RunDir) -> dict[str, Any]:
    """Everything worth keeping of a finished run except its weights."""
    config = read_json(folder.path / "config.json", dict)
    branched = config["recipe"].get("branch_epoch", 0)  # up to that epoch the records are those of its trunk
    layers = folder.path / LAYERS
    return {
        **config,
        "summary": read_json(folder.path / "summary.json", dict),
        "layers": read_json(layers, list) if layers.exists() else [],
        "epochs": list(read_lines(folder.path / "metrics.jsonl", dict))[branched:],
        "updates": list(read_lines(folder.path / UPDATES, dict)),
    }


def log_path(results: Path, run: str) -> Path:
    """Where the log of a run is kept."""
    return results / "logs" / f"{run}.json"


def read_log(results: Path, run: str, build: Callable[[Any], T]) -> T | None:
    """What ``build`` makes of the log of a run, if it is in the results; ValueError that names a damaged file."""
    path = log_path(results, run)
    return read_json(path, build) if path.is_file() else None


def read_results(folder: Path) -> dict[str, dict[str, str]]:
    """All rows of the result files in a folder by the name of the run, each with the name of its file.

    ValueError that says where a file is damaged: a run that is passed over would be trained again, and its row lost.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted(folder.glob("*.csv")):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"results={str(folder)!r}: {path.name} is damaged ({error})") from error
        for line, row in _rows(folder, path.name, text):
            problem = _problem(row)
            if problem is None and row["run"] in found:
                problem = f"run={row['run']!r} must stand in the results once; {found[row['run']]['file']} has it too"
            if problem is not None:
                raise ValueError(f"results={str(folder)!r}: {path.name}, line {line}: {problem}")
            found[row["run"]] = former_names.renamed(_FORMER, row) | {"file": path.name}
    return found


def _rows(folder: Path, name: str, text: str) -> Iterator[tuple[int, dict[str | Any, str | Any]]]:
    """Each row of a file and the number of its line."""
    table = csv.DictReader(io.StringIO(text, newline=""))
    try:
        if lacking := [column for column in COLUMNS if column not in (table.fieldnames or ())]:
            raise ValueError(f"results={str(folder)!r}: {name} has no column {lacking[0]!r}")
        for row in table:
            yield table.line_num, row
    except csv.Error as error:
        raise ValueError(f"results={str(folder)!r}: {name}, after line {table.line_num}: {error}") from error


def _problem(row: Mapping[str | None, str | None]) -> str | None:
    """What is wrong with a row."""
    if None in row or None in row.values():  # a row cut short, or what a merge left there
        return "must have a value for each of the columns"
    if not row["run"]:
        return "run='': must be the name of a run"
    for name, largest in _LARGEST.items():
        value = row[name]
        if not value and name in _MAY_LACK:
            continue
        try:
            right = 0 <= float(value or "") <= largest
        except ValueError:
            right = False
        if not right:
            return f"{name}={value!r}: must be a number {'from 0' if largest == math.inf else f'from 0 to {largest:g}'}"
    return None


def keep(recipe: Recipe, out: Path, results: Path, table: str, more: Mapping[str, Any] | None = None) -> None:
    """Put a finished run into the results: its log, and its row into the file of the table, device and torch.

    ``more`` are columns besides those of this module, the same for all rows of a table. A run is in the results once:
    training it again, only for others to start from, changes nothing. Several processes may do this at once.
    """
    row = row_of(recipe, out)
    assert row is not None
    kept = log_path(results, row["run"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    with locked(results, wait=True):
        before = read_results(results)
        if row["run"] in before:
            return
        device = row["device"].lower().removeprefix("nvidia ").replace(" ", "-")
        version = ".".join(row["torch"].split(".")[:2])
        path = results / f"{table}-{device}-torch{version}.csv"
        write_text(kept, json.dumps(log(RunDir.find(out, recipe)), separators=(",", ":")) + "\n")
        others = [old for old in before.values() if old["file"] == path.name]
        write_csv(path, [*others, {**row, **(more or {})}], (*COLUMNS, *(more or {})))

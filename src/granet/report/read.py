"""Run folders as values. All that a report says about a run comes from here, and is checked here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granet.files import read_json
from granet.sparsifier import UpdateRecord
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary, check_number, checked
from granet.training.rundir import LAYERS, UPDATES, LayerCount, RunDir, read_lines


@dataclass(frozen=True)
class ReportedRun:
    """What a run's folder tells. Without a `summary` it is unfinished; without `layers`, unfinished or dense."""

    path: Path
    recipe: Recipe
    environment: Mapping[str, Any]
    records: tuple[EpochRecord, ...]
    summary: Summary | None
    layers: tuple[LayerCount, ...]
    updates: tuple[UpdateRecord, ...]


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run folders among `paths` and directly below them, each once; ValueError for a path without any."""
    found: dict[Path, Path] = {}
    for path in paths:
        below = [path] if _is_run(path) else sorted(filter(_is_run, path.iterdir())) if path.is_dir() else []
        if not below:
            raise ValueError(
                f"runs={str(path)!r}: must be the folder of a run, with a config.json, or a folder of those"
            )
        for folder in below:
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def read_run(folder: Path) -> ReportedRun:
    """The run in `folder`; ValueError that names the file, and the line in it, if something cannot be understood."""
    run = RunDir(folder)
    summary = run.summary  # before the records, which may grow meanwhile
    finished = summary is not None  # before that, one of these two files may be there without the other
    layers = read_json(folder / LAYERS, _layers) if finished and (folder / LAYERS).exists() else ()
    updates = tuple(read_lines(folder / UPDATES, lambda values: _update(values, len(layers)))) if finished else ()
    return ReportedRun(folder, run.recipe, run.environment, tuple(run.records), summary, layers, updates)


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _update(values: Any, layers: int) -> UpdateRecord:
    record = UpdateRecord.from_dict(checked(UpdateRecord, values))
    if len(record.active) != layers:
        raise ValueError(f"active has {len(record.active)} numbers, there are {layers} layers")
    for index, count in enumerate(record.active):
        check_number(f"active[{index}]", count)
    return record


def _layers(values: Any) -> tuple[LayerCount, ...]:
    layers = [LayerCount(**(checked(LayerCount, value) | {"shape": tuple(value["shape"])})) for value in values]
    for layer in layers:
        if not 0 <= layer.active <= layer.weights or layer.weights < 1:
            raise ValueError(f"{layer.name} has {layer.active} active of {layer.weights} weights")
        if min(layer.shape, default=0) < 1 or math.prod(layer.shape) != layer.weights:
            raise ValueError(f"{layer.name} has shape {layer.shape} and {layer.weights} weights")
    return tuple(layers)

"""Run folders as values. All that a report says about a run comes from here, and is checked here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from granet.files import parse_json, read_json
from granet.sparsifier import UpdateRecord
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary
from granet.training.rundir import LAYERS, UPDATES, LayerCount

T = TypeVar("T")


@dataclass(frozen=True)
class ReportedRun:
    """What a run's folder tells. Without a `summary` it is not finished; without `layers` it is that, or dense."""

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
    recipe, environment = read_json(folder / "config.json", _config)
    summary = read_json(folder / "summary.json", _summary) if (folder / "summary.json").exists() else None
    layers = read_json(folder / LAYERS, _layers) if (folder / LAYERS).exists() else ()
    updates = tuple(_lines(folder / UPDATES, lambda values: _update(values, len(layers))))
    records = tuple(_lines(folder / "metrics.jsonl", _epoch, growing=summary is None))
    return ReportedRun(folder, recipe, environment, records, summary, layers, updates)


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _lines(path: Path, build: Callable[[Any], T], growing: bool = False) -> Iterator[T]:
    """One value per line; none if there is no such file. The last line of a file that grows may be half there yet."""
    if path.exists():
        *lines, rest = path.read_bytes().split(b"\n")
        for number, line in enumerate([*lines, rest] if rest and not growing else lines, start=1):
            yield parse_json(f"{path}, line {number}", line, build)


def _config(values: Any) -> tuple[Recipe, dict[str, Any]]:
    return Recipe.from_dict(values["recipe"]), dict(values["environment"])


def _summary(values: Any) -> Summary:
    return Summary(**_checked(Summary, values))


def _epoch(values: Any) -> EpochRecord:
    record = EpochRecord(**_checked(EpochRecord, values))
    for name, value in (record.observed or {}).items():
        if value is not None:
            _check_number(f"observed {name}", value)
    return record


def _update(values: Any, layers: int) -> UpdateRecord:
    record = UpdateRecord.from_dict(_checked(UpdateRecord, values))
    if len(record.active) != layers:
        raise ValueError(f"active has {len(record.active)} numbers, there are {layers} layers")
    for index, count in enumerate(record.active):
        _check_number(f"active[{index}]", count)
    return record


def _layers(values: Any) -> tuple[LayerCount, ...]:
    layers = [LayerCount(**(_checked(LayerCount, value) | {"shape": tuple(value["shape"])})) for value in values]
    for layer in layers:
        if not 0 <= layer.active <= layer.weights or layer.weights < 1:
            raise ValueError(f"{layer.name} has {layer.active} active of {layer.weights} weights")
        if min(layer.shape, default=0) < 1 or math.prod(layer.shape) != layer.weights:
            raise ValueError(f"{layer.name} has shape {layer.shape} and {layer.weights} weights")
    return tuple(layers)


def _checked(kind: type, values: Any) -> dict[str, Any]:
    """`values` for the fields of `kind`: of the right type, with NaN for null where a number must be."""
    checked = dict(values)
    for field in fields(kind):
        if field.name not in checked:
            continue
        value, allowed = checked[field.name], str(field.type)
        if allowed == "str" and not isinstance(value, str):
            raise ValueError(f"{field.name}={value!r} is not a text")
        if allowed == "bool" and not isinstance(value, bool):
            raise ValueError(f"{field.name}={value!r} is neither true nor false")
        if not allowed.startswith(("int", "float")):
            continue
        if value is not None:
            _check_number(field.name, value)
        elif "None" not in allowed:
            checked[field.name] = math.nan
    return checked


def _check_number(name: str, value: Any) -> None:
    """A whole number of hundreds of digits is none: nothing can be drawn of it."""
    if not isinstance(value, int | float):
        raise ValueError(f"{name}={value!r} is not a number")
    try:
        float(value)
    except OverflowError as error:
        raise ValueError(f"{name} is too large a number") from error

"""A plan's operators as JSON values and back. What is read may be anything: it becomes operators or a ValueError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

from granet.checkpoint.safetensors_file import is_count, shown
from granet.deploy.operators import Activation, AdaptivePool, Add, Conv, Flatten, Linear, Op, Pool

_OPS: dict[str, type[Op]] = {
    "conv": Conv,
    "linear": Linear,
    "pool": Pool,
    "adaptive pool": AdaptivePool,
    "add": Add,
    "activation": Activation,
    "flatten": Flatten,
}
_NAMES = {kind: name for name, kind in _OPS.items()}


def op_record(op: Op) -> dict[str, Any]:
    """The operator's name, and those of its fields that have other values than by default.

    >>> op_record(Conv(source=0, weight=2, padding=(1, 1)))
    {'op': 'conv', 'source': 0, 'weight': 2, 'padding': (1, 1)}
    """
    values = {field.name: getattr(op, field.name) for field in fields(op)}
    said = {field.name for field in fields(op) if values[field.name] != field.default}
    return {"op": _NAMES[type(op)], **{name: value for name, value in values.items() if name in said}}


def read_op(number: int, record: Any) -> Op:
    """What `op_record` gave, after a way through JSON. Its numbers have their types, and may still be of nothing."""
    if not isinstance(record, dict) or not isinstance(record.get("op"), str) or record["op"] not in _OPS:
        raise ValueError(f"operator {number}: {shown(record)}: op must be one of {', '.join(_OPS)}")
    kind = _OPS[record["op"]]
    known = {field.name: field for field in fields(kind)}
    if unknown := record.keys() - known.keys() - {"op"}:
        raise ValueError(f"operator {number}: {shown(min(unknown))}: is no field of {record['op']}")
    return kind(**{name: _read_field(number, field, record) for name, field in known.items()})


def _read_field(number: int, field: Field[Any], record: dict[str, Any]) -> Any:
    if field.name not in record:
        if field.default is MISSING:
            raise ValueError(f"operator {number}: {field.name}: is missing")
        return field.default
    value = record[field.name]
    fits, words = _KINDS[str(field.type)]
    if not fits(value):
        raise ValueError(f"operator {number}: {field.name} {shown(value)}: must be {words}")
    return tuple(value) if isinstance(value, list) else value


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (is_count, "a whole number"),
    "int | None": (lambda value: value is None or is_count(value), "a whole number or null"),
    "Pair": (_is_pair, "two whole numbers"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "str": (lambda value: isinstance(value, str), "a string"),
}
"""By how a field is annotated: whether a value is such, and what it must be."""

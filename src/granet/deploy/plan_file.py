"""`.granet` files: a plan and its weights without their zeros, as safetensors, ready for an engine in milliseconds.

The file has a row for each way in which values are stored, and one for positions; arrays follow each other in them in
the plan's order. The plan is JSON in the metadata of the header:

    {"inputs": [[1, 3, 32, 32]], "outputs": [23], "ops": [{"op": "conv", "source": 0, "weight": 0, "bias": 1}, ...],
     "arrays": [{"shape": [64, 3, 3, 3], "values": "F16", "stored": 51, "steps": 51}, {"shape": [64]}, ...]}

An array is stored whole, or its `stored` elements are, at positions that `steps` numbers of 16 bits tell: a step below
65535 is the number of zeros before the next stored element, and 65535 leads over so many elements and to none. As in a
packed file, a SHA-256 of all of it is in the header.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from granet.checkpoint.safetensors_file import (
    DTYPE_NAMES,
    DTYPES,
    Format,
    Header,
    check_digest,
    is_count,
    parse_json,
    read_header,
    shown,
    write_file,
)
from granet.deploy.operators import LARGEST, Array, Shape
from granet.deploy.plan import Plan
from granet.deploy.plan_json import op_record, read_op

FORMAT = Format(
    name="granet.deploy",
    version="1",
    writer="granet.deploy.save",
    others="is another safetensors file, not one of granet.deploy.save; granet.load reads those of granet.save",
    largest_header=1 << 20,
)
STEPS = "steps"
_FAR = 65535
_STORED_AS = (torch.float32, torch.float16, torch.bfloat16)


def save_plan(plan: Plan, path: str | os.PathLike[str], dtype: torch.dtype | None = None) -> None:
    """Write a plan, whole or not at all; `dtype` rounds the weights, but not biases."""
    kind = torch.float32 if dtype is None else dtype
    if kind not in _STORED_AS:
        raise ValueError(f"dtype={dtype!r}: must be torch.float16 or torch.bfloat16, or None to keep every bit")
    rows: dict[str, list[Tensor]] = defaultdict(list)
    records = []
    for number, array in enumerate(plan.arrays):
        record: dict[str, Any] = {"shape": array.shape}
        stored = kind if len(array.shape) > 1 else torch.float32
        values = torch.tensor(array.values).to(stored)
        if not bool(values.isfinite().all()):
            raise ValueError(f"dtype={dtype!r}: cannot hold the weights of array {number}, which are larger")
        if stored != torch.float32:
            record["values"] = DTYPE_NAMES[stored]
        if array.positions is not None:
            steps = _steps(array.positions)
            record |= {"stored": len(values), "steps": len(steps)}
            if len(steps):
                rows[STEPS].append(torch.from_numpy(steps))
        if len(values):
            rows[DTYPE_NAMES[stored]].append(values)
        records.append(record)
    content = {
        "inputs": plan.inputs,
        "outputs": plan.outputs,
        "ops": [op_record(op) for op in plan.ops],
        "arrays": records,
    }
    write_file(Path(path), rows, FORMAT, {"plan": json.dumps(content, separators=(",", ":"))})


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file. ValueError that names the file for whatever is wrong with it."""
    try:
        with Path(path).open("rb") as file:
            header = read_header(file, FORMAT)
            payload = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[8 + len(header.text) :]
        if len(payload) != max((row.end for row in header.rows.values()), default=0):
            raise ValueError("changed while it was read")
        check_digest(header, payload)
        return _read(header, payload)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
    except OSError as error:
        raise ValueError(f"{os.fspath(path)}: must be a file that can be read ({error.strerror})") from error


def _read(header: Header, payload: memoryview) -> Plan:
    text = header.metadata.get("plan")
    if not isinstance(text, str):
        raise ValueError("has no plan")
    content = parse_json(text.encode(errors="replace"), "plan")
    if content.keys() != {"inputs", "outputs", "ops", "arrays"} or not all(
        isinstance(part, list) for part in content.values()
    ):
        raise ValueError("its plan must have lists of inputs, outputs, ops and arrays")
    rows = _Rows(header, payload)
    arrays = tuple(rows.array(number, record) for number, record in enumerate(content["arrays"]))
    rows.check_end()
    inputs = tuple(_shape(f"input {number}", shape) for number, shape in enumerate(content["inputs"]))
    ops = tuple(read_op(number, record) for number, record in enumerate(content["ops"]))
    if not all(map(is_count, content["outputs"])):
        raise ValueError(f"outputs {shown(content['outputs'])}: must be whole numbers")
    return Plan(inputs, ops, tuple(content["outputs"]), arrays)


class _Rows:
    """The rows of a file, from which arrays are taken one after the other. What is taken is copied."""

    def __init__(self, header: Header, payload: memoryview) -> None:
        known = {STEPS: torch.uint16} | {DTYPE_NAMES[dtype]: dtype for dtype in _STORED_AS}
        for name, row in header.rows.items():
            if known.get(name) != row.dtype:
                raise ValueError(f"{shown(name)}: its elements cannot be {row.dtype}")
        self._rows, self._payload = header.rows, payload
        self._taken: dict[str, int] = defaultdict(int)

    def array(self, number: int, record: Any) -> Array:
        what = f"array {number}"
        if not isinstance(record, dict) or not {"shape"} <= record.keys() <= {"shape", "values", "stored", "steps"}:
            raise ValueError(f"{what}: {shown(record)}: must have shape, and may have values, stored and steps")
        shape, row = _shape(what, record.get("shape")), record.get("values", "F32")
        if not isinstance(row, str) or DTYPES.get(row) not in _STORED_AS:
            raise ValueError(f"{what}: values {shown(row)}: must be F32, F16 or BF16")
        if not {"stored", "steps"} & record.keys():
            return Array(shape, None, _floats(self._take(what, row, math.prod(shape)), row))
        stored, count = record.get("stored"), record.get("steps", -1)
        if not is_count(stored) or not is_count(count):
            raise ValueError(f"{what}: stored {shown(stored)} and steps {shown(count)}: must be whole numbers")
        positions = _positions(self._take(what, STEPS, count), math.prod(shape))
        if len(positions) != stored:
            raise ValueError(f"{what}: its steps lead to {len(positions)} elements, {shown(stored)} are said")
        return Array(shape, positions, _floats(self._take(what, row, stored), row))

    def check_end(self) -> None:
        """ValueError if something is left."""
        for name, row in self._rows.items():
            if self._taken[name] != row.length:
                raise ValueError(f"{shown(name)}: has {row.length} elements, the arrays have {self._taken[name]}")

    def _take(self, what: str, name: str, count: int) -> NDArray[Any]:
        row, taken = self._rows.get(name), self._taken[name]
        there = 0 if row is None else row.length - taken
        if count > there or row is None:
            if count == 0:
                return np.empty(0, dtype=np.uint16)
            raise ValueError(f"{what}: needs {shown(count)} elements of the row {name!r}, which has {there} more")
        self._taken[name] = taken + count
        kind = {"F32": "<f4", "F16": "<f2"}.get(name, "<u2")
        return np.frombuffer(self._payload, kind, count, row.begin + taken * row.dtype.itemsize)


def _steps(positions: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """The numbers that lead to ascending positions.

    >>> _steps(np.array([2, 3, 70000], dtype=np.uint32))
    array([    2,     0, 65535,  4461], dtype=uint16)
    """
    ends = np.concatenate([[-1], positions.astype(np.int64)])
    gaps = ends[1:] - ends[:-1] - 1
    over = gaps // _FAR
    steps = np.full(len(gaps) + int(over.sum()), _FAR, dtype=np.uint16)
    steps[np.arange(len(gaps)) + np.cumsum(over)] = gaps % _FAR
    return steps


def _positions(steps: NDArray[np.uint16], size: int) -> NDArray[np.uint32]:
    """Where they lead; ValueError if that is not among so many elements."""
    stops = steps < _FAR
    ends = np.cumsum(steps.astype(np.int64) + stops) - 1
    if len(ends) and ends[-1] >= size:
        raise ValueError(f"position {ends[-1]}: must be below {size}")
    found: NDArray[np.uint32] = ends[stops].astype(np.uint32)
    return found


def _floats(values: NDArray[Any], row: str) -> NDArray[np.float32]:
    """As float32, in memory of their own."""
    if row == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _shape(what: str, value: Any) -> Shape:
    if not isinstance(value, list) or not 0 < len(value) <= 8 or not all(map(is_count, value)):
        raise ValueError(f"{what}: {shown(value)} is not a shape")
    if not 0 < math.prod(value) <= LARGEST:
        raise ValueError(f"{what}: shape {shown(value)}: must have from 1 to {LARGEST} elements")
    return tuple(value)

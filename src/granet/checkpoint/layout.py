"""How the tensors of a model are laid out in a packed file.

A file has few rows, however many tensors there are. For each dtype in use there is one row, named after the dtype (say
`F32`), with the elements of all tensors stored in it. The row `masks` holds codes that say where the stored elements of
sparse tensors are (`mask_codes.py`). Tensors follow each other in the rows as they do in the table, so there are no
offsets that could be wrong. The table is a row itself, `table`: JSON, compressed by zlib.

    {"conv.weight": {"dtype": "F32", "shape": [64, 3, 3, 3],
                     "values": "BF16",         if its elements were rounded: the row that they are in
                     "mask": true,             if it has a mask: the stored elements are the active ones
                     "code": [3, 170, 103]},   if zeros are left out: k, number of stored elements, bytes of the code
     "decoder.weight": "encoder.weight"}       another name of a tensor above
"""

from __future__ import annotations

import json
import math
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from granet.checkpoint.mask_codes import LARGEST_K, longest_code
from granet.checkpoint.safetensors_file import DTYPE_NAMES, DTYPES, Row, is_count, parse_json, shown

MASKS = "masks"
TABLE = "table"
ROUNDED = (torch.float32, torch.float64)
"""The dtypes whose elements can be stored as bfloat16."""
LARGEST_TABLE = 1 << 21
"""Bytes of JSON; some 30,000 tensors. To parse it, Python takes at most some 50 times as much, whatever it says."""
_LARGEST_SHAPE = 1 << 48  # elements


@dataclass(frozen=True)
class Code:
    """The code of a packed tensor's positions: its parameter, the number of positions, and its length in bytes."""

    k: int
    stored: int
    length: int


@dataclass(frozen=True)
class Stored:
    """One tensor of the model: what it is, and how it is stored."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    row: str
    """Where its elements are: the name of its dtype, or of the one that they were rounded to."""
    masked: bool
    code: Code | None
    """None if all elements are stored."""

    @property
    def length(self) -> int:
        """How many of its elements are stored."""
        return math.prod(self.shape) if self.code is None else self.code.stored


Table = dict[str, Stored | str]
"""All tensors of the model by name. A string is the first name of a tied tensor, which is above it."""


def tensors_by_name(table: Table) -> dict[str, Stored]:
    """What each name of the table stands for."""
    tensors: dict[str, Stored] = {}
    for name, stored in table.items():
        tensors[name] = tensors[stored] if isinstance(stored, str) else stored
    return tensors


def compress_table(table: Table) -> bytes:
    """The table as it is in the file."""
    records = {name: stored if isinstance(stored, str) else _record(stored) for name, stored in table.items()}
    text = json.dumps(records, separators=(",", ":")).encode()
    if len(text) > LARGEST_TABLE:
        raise ValueError(f"model: its {len(table)} names take {len(text)} bytes; must be {LARGEST_TABLE} at most")
    return zlib.compress(text, 9)


def decompress_table(compressed: bytes) -> Table:
    """What :func:`compress_table` wrote, every record checked by itself."""
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(compressed, LARGEST_TABLE + 1)
    except zlib.error as error:
        raise ValueError(f"its table cannot be decompressed ({shown(error)})") from error
    if len(text) > LARGEST_TABLE:
        raise ValueError(f"its table takes more than {LARGEST_TABLE} bytes")
    if not inflate.eof or inflate.unused_data:
        raise ValueError("its table is cut short, or longer than what is compressed in it")
    table: Table = {}
    for name, record in parse_json(text, "table").items():
        if not isinstance(record, str):
            table[name] = _stored(name, record)
        elif isinstance(table.get(record), Stored):
            table[name] = record
        else:
            raise ValueError(f"{shown(name)}: cannot be another name of {shown(record)}")
    return table


def check_rows(table: Table, rows: Mapping[str, Row]) -> None:
    """ValueError unless these rows hold the tensors of the table, and nothing else."""
    for name, row in rows.items():
        if row.dtype != DTYPES.get(name, torch.uint8):
            raise ValueError(f"{shown(name)}: its elements cannot be {row.dtype}")
    lengths: dict[str, int] = defaultdict(int)
    lengths[TABLE] = rows[TABLE].length
    for stored in table.values():
        if isinstance(stored, Stored):
            lengths[stored.row] += stored.length
            if stored.code is not None:
                lengths[MASKS] += stored.code.length
    for name in sorted(lengths.keys() | rows.keys()):
        there, told = rows[name].length if name in rows else "no", lengths.get(name, "no")
        if there != told:
            raise ValueError(f"its row {shown(name)} has {there} elements, its table is about {told}")


def _record(stored: Stored) -> dict[str, Any]:
    record: dict[str, Any] = {"dtype": DTYPE_NAMES[stored.dtype], "shape": stored.shape}
    if stored.row != record["dtype"]:
        record["values"] = stored.row
    if stored.masked:
        record["mask"] = True
    if stored.code is not None:
        record["code"] = [stored.code.k, stored.code.stored, stored.code.length]
    return record


def _stored(name: str, record: Any) -> Stored:
    """What a record says."""
    required, optional = {"dtype", "shape"}, {"values", "mask", "code"}
    if not isinstance(record, dict) or not required <= record.keys() <= required | optional:
        raise ValueError(f"{shown(name)}: its record {shown(record)} must have dtype and shape, or values, mask, code")
    dtype, shape, masked = record["dtype"], record["shape"], record.get("mask", False)
    row = record.get("values", dtype)
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{shown(name)}: dtype {shown(dtype)} must be one of {', '.join(DTYPES)}")
    if row != dtype and not (row == DTYPE_NAMES[torch.bfloat16] and DTYPES[dtype] in ROUNDED):
        raise ValueError(f"{shown(name)}: {dtype} cannot have been rounded to {shown(row)}")
    if not _is_shape(shape):
        raise ValueError(f"{shown(name)}: {shown(shape)} is not a shape")
    if not isinstance(masked, bool):
        raise ValueError(f"{shown(name)}: mask {shown(masked)} must be true or false")
    code = _code(name, record["code"], math.prod(shape)) if "code" in record else None
    return Stored(tuple(shape), DTYPES[dtype], row, masked, code)


def _code(name: str, record: Any, numel: int) -> Code:
    if not isinstance(record, list) or len(record) != 3 or not all(is_count(number) for number in record):
        raise ValueError(f"{shown(name)}: code {shown(record)} must be k, number of elements and bytes")
    k, stored, length = record
    if k > LARGEST_K:
        raise ValueError(f"{shown(name)}: k={shown(k)} must be a number from 0 to {LARGEST_K}")
    if stored > numel or length > longest_code(k, stored, numel):
        raise ValueError(f"{shown(name)}: code {shown(record)} does not fit {numel} elements")
    return Code(k, stored, length)


def _is_shape(value: Any) -> bool:
    """Whether this, from JSON, is the shape of a tensor that could be."""
    return (
        isinstance(value, list)
        and len(value) <= 64
        and all(is_count(side) and side <= _LARGEST_SHAPE for side in value)
        and math.prod(max(side, 1) for side in value) <= _LARGEST_SHAPE
    )

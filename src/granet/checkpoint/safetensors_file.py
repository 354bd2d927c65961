"""Rows of elements in a safetensors file with a checksum; the reader trusts nothing in the file.

A safetensors file is the length of its header (8 bytes, little endian), the header (JSON: name -> dtype, shape and
place of each tensor, and a map of strings called `__metadata__`), and the tensors' bytes. Here every tensor is one row,
and the metadata hold the version of the format and the SHA-256 of the whole file, taken with the 64 digits of the
checksum itself written as zeros.

The header is checked before anything else is read or allocated: the rows must tile the rest of the file exactly.
Errors are ValueErrors that say what is wrong with the file; the caller adds which file it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from granet.files import atomic

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_NO_DIGEST = "0" * 64


@dataclass(frozen=True)
class Format:
    """One kind of such files."""

    name: str
    """Its entry in the metadata, which is the version."""
    version: str
    writer: str
    """What writes such files, for errors."""
    others: str
    """What is said of other safetensors files."""
    largest_header: int
    """Bytes."""


PACKED = Format(
    name="granet",
    version="1",
    writer="granet.save",
    others="is a plain safetensors file, not a packed one of granet.save; safetensors.torch.load_file reads it",
    largest_header=1 << 16,  # a row takes less than 100, and there is one for each dtype and two more
)


@dataclass(frozen=True)
class Row:
    """Where a row is: its bytes, counted from the end of the header."""

    dtype: torch.dtype
    begin: int
    end: int

    @property
    def length(self) -> int:
        """Its elements."""
        return (self.end - self.begin) // self.dtype.itemsize


@dataclass(frozen=True)
class Header:
    """What a file says that it holds."""

    rows: dict[str, Row]
    digest: str
    text: bytes
    metadata: dict[str, Any]


def write_file(
    path: Path, rows: Mapping[str, Sequence[Tensor]], format: Format = PACKED, metadata: Mapping[str, str] | None = None
) -> None:
    """Write rows and more metadata, whole or not at all; the same content gives the same bytes.

    A row is the elements of its contiguous CPU tensors, one after the other: one tensor at least, all of one dtype.
    """
    names = sorted(rows, key=lambda name: (-rows[name][0].element_size(), name))  # so all are aligned
    header: dict[str, Any] = {"__metadata__": {"sha256": _NO_DIGEST, format.name: format.version, **(metadata or {})}}
    end = 0
    for name in names:
        begin, end = end, end + sum(part.nbytes for part in rows[name])
        header[name] = {
            "dtype": DTYPE_NAMES[rows[name][0].dtype],
            "shape": [sum(part.numel() for part in rows[name])],
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > format.largest_header:
        raise ValueError(f"{path}: its header would take {len(text)} bytes, and may take {format.largest_header}")
    payload = [part.reshape(-1).view(torch.uint8).numpy().data for name in names for part in rows[name]]
    digest = _digest(text, payload)
    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text.replace(_NO_DIGEST.encode(), digest.encode(), 1))
        file.writelines(payload)


def read_header(file: BufferedReader, format: Format = PACKED) -> Header:
    """The header of a file that :func:`write_file` wrote; nothing of the rows is read yet."""
    size = os.fstat(file.fileno()).st_size
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if length > size - 8:
        swapped = int.from_bytes(first, "big")
        if swapped <= min(size - 8, format.largest_header) and file.read(swapped).rstrip().endswith(b"}"):
            raise ValueError("is of another byte order: its numbers begin with their highest byte")
        raise ValueError("is not a safetensors file, or is cut short")
    if length > format.largest_header:
        raise ValueError(f"its header takes {length} bytes, one of {format.writer} at most {format.largest_header}")
    text = file.read(length)
    content = parse_json(text, "header")
    metadata = content.pop("__metadata__", None)
    if not isinstance(metadata, dict) or format.name not in metadata:
        raise ValueError(format.others)
    if metadata[format.name] != format.version:
        raise ValueError(f"is of version {shown(metadata[format.name])}, this granet reads version {format.version!r}")
    digest = metadata.get("sha256")
    if not isinstance(digest, str):
        raise ValueError(f"its checksum {shown(digest)} must be a string")
    rows = {name: _row(name, value) for name, value in content.items()}
    end = 0
    for name, row in sorted(rows.items(), key=lambda item: (item[1].begin, item[1].end)):
        if row.begin != end:
            raise ValueError(f"{shown(name)}: begins at byte {row.begin}, the row before it ends at byte {end}")
        end = row.end
    if end != size - 8 - length:
        raise ValueError(f"its rows should take {end} bytes but {size - 8 - length} are there, so it is damaged")
    return Header(rows, digest, text, metadata)


def read_bytes(file: BufferedReader, header: Header, name: str, most: int) -> bytes:
    """The bytes of one row, `most` at most, not verified by the checksum."""
    row = header.rows.get(name)
    if row is None or row.end - row.begin > most:
        raise ValueError(f"must have a row {name!r} of at most {most} bytes")
    file.seek(8 + len(header.text) + row.begin)
    return file.read(row.end - row.begin)


def read_rows(file: BufferedReader, header: Header) -> dict[str, Tensor]:
    """All rows, verified by the checksum; they share memory."""
    size = max((row.end for row in header.rows.values()), default=0)
    payload = bytearray(size + 1)  # one byte more: torch makes no tensor from an empty buffer
    file.seek(8 + len(header.text))
    if file.readinto(memoryview(payload)) != size:
        raise ValueError("changed while it was read")
    check_digest(header, memoryview(payload)[:size])
    whole = torch.frombuffer(payload, dtype=torch.uint8)
    rows = {name: whole[row.begin : row.end].view(row.dtype) for name, row in header.rows.items()}
    if any(row.dtype == torch.bool and bool((row.view(torch.uint8) > 1).any()) for row in rows.values()):
        raise ValueError("holds bytes that are neither 0 nor 1 as BOOL")
    return rows


def check_digest(header: Header, payload: memoryview) -> None:
    """ValueError unless the rows, which are these bytes, are as they were written."""
    text = header.text.replace(header.digest.encode(errors="replace"), _NO_DIGEST.encode(), 1)
    if _digest(text, [payload]) != header.digest:
        raise ValueError("is damaged: its SHA-256 is not the one written in it")


def parse_json(text: bytes, what: str) -> dict[str, Any]:
    """A JSON object in which no name occurs twice."""
    try:
        content = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {what} cannot be read as JSON ({shown(error)})") from error
    if not isinstance(content, dict):
        raise ValueError(f"its {what} is not a JSON object")
    return content


def is_count(value: Any) -> bool:
    """Whether this, from JSON, is a number of things."""
    return type(value) is int and value >= 0


def shown(value: object) -> str:
    """`value` in an error message: quoted, and not longer than a line."""
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _row(name: str, value: Any) -> Row:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{shown(name)}: its header entry must have dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{shown(name)}: dtype {shown(dtype)} must be one of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or len(shape) != 1 or not is_count(shape[0]):
        raise ValueError(f"{shown(name)}: shape {shown(shape)} must be that of one row")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(is_count(offset) for offset in offsets):
        raise ValueError(f"{shown(name)}: data_offsets {shown(offsets)} must be two numbers")
    (length,), (begin, end), size = shape, offsets, DTYPES[dtype].itemsize
    if end - begin != length * size or begin % size:
        raise ValueError(f"{shown(name)}: {shown(offsets)} cannot be the place of {shown(length)} elements of {dtype}")
    return Row(DTYPES[dtype], begin, end)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice")
    return content


def _digest(text: bytes, payload: Iterable[memoryview]) -> str:
    """SHA-256 of a file with that header, the checksum's digits being zeros in it."""
    digest = hashlib.sha256(len(text).to_bytes(8, "little"))
    digest.update(text)
    for part in payload:
        digest.update(part)
    return digest.hexdigest()

"""Safetensors files with a checksum, read with suspicion.

A safetensors file is the length of its header (8 bytes, little endian), the header (JSON: name -> dtype, shape and
place of each tensor, and a map of strings called `__metadata__`), and the tensors' bytes. Here the metadata also hold
the SHA-256 of the whole file, taken with the 64 digits of the checksum itself written as zeros.

The header is checked before anything else is read or allocated: the tensors must tile the rest of the file exactly.
Errors are ValueErrors that say what is wrong with the file; the caller adds which file it is.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
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

LARGEST_HEADER = 1 << 24  # bytes; some 100,000 tensors. Parsed JSON takes many times its text.
_LARGEST_SHAPE = 1 << 48  # elements
_NO_DIGEST = "0" * 64


@dataclass(frozen=True)
class Entry:
    """Where a tensor is: its bytes, counted from the end of the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a file says that it holds."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    text: bytes


def write_file(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write contiguous CPU tensors, whole or not at all; the same content gives the same bytes."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so all are aligned
    header: dict[str, Any] = {"__metadata__": {"sha256": _NO_DIGEST, **metadata}}
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LARGEST_HEADER:
        raise ValueError(f"the names of {len(tensors)} tensors take {len(text)} bytes, more than {LARGEST_HEADER}")
    payload = [tensors[name].reshape(-1).view(torch.uint8).numpy().data for name in names]
    digest = _digest(text, payload)
    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text.replace(_NO_DIGEST.encode(), digest.encode(), 1))
        file.writelines(payload)


def read_header(file: BufferedReader) -> Header:
    """The header of a file that :func:`write_file` wrote; nothing of the tensors is read yet."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, LARGEST_HEADER):
        raise ValueError("is not a safetensors file, or is cut short")
    text = file.read(length)
    content = parse_json(text, "header")
    metadata = content.pop("__metadata__", None)
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its header has no metadata, so granet did not write it")
    entries = {name: _entry(name, value) for name, value in content.items()}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise ValueError(f"{shown(name)}: begins at byte {entry.begin}, the tensor before it ends at byte {end}")
        end = entry.end
    if end != size - 8 - length:
        raise ValueError(f"its tensors should take {end} bytes but {size - 8 - length} are there, so it is damaged")
    return Header(entries, metadata, text)


def read_payload(file: BufferedReader, header: Header) -> Tensor:
    """The bytes of all tensors (uint8), proved by the checksum; `file` is where `read_header` left it."""
    size = max((entry.end for entry in header.entries.values()), default=0)
    payload = bytearray(size + 1)  # one more than there should be: torch makes no tensor of an empty buffer
    if file.readinto(memoryview(payload)) != size:
        raise ValueError("changed while it was read")
    digest = header.metadata.get("sha256", "")
    text = header.text.replace(digest.encode(errors="replace"), _NO_DIGEST.encode(), 1)
    if _digest(text, [memoryview(payload)[:size]]) != digest:
        raise ValueError("is damaged: its SHA-256 is not the one written in it")
    return torch.frombuffer(payload, dtype=torch.uint8)[:size]


def read_tensor(name: str, header: Header, payload: Tensor) -> Tensor:
    """One tensor, in memory of its own."""
    entry = header.entries[name]
    raw = payload[entry.begin : entry.end].clone()
    if entry.dtype == torch.bool and bool((raw > 1).any()):
        raise ValueError(f"{shown(name)}: holds bytes that are neither 0 nor 1 as BOOL")
    return raw.view(entry.dtype).view(entry.shape)


def parse_json(text: bytes | str, what: str) -> dict[str, Any]:
    """A JSON object in which no name occurs twice."""
    try:
        content = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {what} cannot be read as JSON ({shown(error)})") from error
    if not isinstance(content, dict):
        raise ValueError(f"its {what} is not a JSON object")
    return content


def is_shape(value: Any) -> bool:
    """Whether this, from JSON, is the shape of a tensor that could be."""
    return (
        isinstance(value, list)
        and len(value) <= 64
        and all(type(side) is int and 0 <= side <= _LARGEST_SHAPE for side in value)
        and math.prod(max(side, 1) for side in value) <= _LARGEST_SHAPE
    )


def shown(value: object) -> str:
    """`value` in an error message: quoted, and not longer than a line."""
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _entry(name: str, value: Any) -> Entry:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{shown(name)}: its header entry must have dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{shown(name)}: dtype {shown(dtype)} must be one of {', '.join(DTYPES)}")
    if not is_shape(shape):
        raise ValueError(f"{shown(name)}: {shown(shape)} is not a shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        raise ValueError(f"{shown(name)}: data_offsets {shown(offsets)} must be two numbers")
    begin, end = offsets
    needed = math.prod(shape) * DTYPES[dtype].itemsize
    if begin < 0 or end - begin != needed:
        raise ValueError(f"{shown(name)}: {shown(offsets)} are not the {needed} bytes of {dtype} {shown(shape)}")
    return Entry(DTYPES[dtype], tuple(shape), begin, end)


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

"""How the tensors of a model are laid out in a packed file.

A tensor is stored dense, as an entry of its own name, or packed, as two: `name:values` with the stored elements, and
`name:mask` with the code of their positions (`granet.mask_codes`). What the entries do not say themselves is in the
file's metadata under `granet`, as JSON:

    {"version": 1,
     "tensors": {name: {"shape": [64, 3, 3, 3], "k": 4,    if it is packed: its shape, and the parameter of the code
                        "mask": true,                      if it has a mask: the stored elements are the active ones
                        "dtype": "F32"}},                  if its elements were rounded: the dtype it had before
     "tied": {name: first name}}                           further names of one tensor
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from granet.mask_codes import LARGEST_K
from granet.safetensors_file import DTYPE_NAMES, DTYPES, Entry, Header, is_shape, parse_json, shown

KEY = "granet"
VERSION = 1
ROUNDED = (torch.float32, torch.float64)
"""The dtypes whose elements can be stored as bfloat16."""


@dataclass(frozen=True)
class Stored:
    """One tensor of the model: what it is, and how it is stored."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    """The dtype in the model; the entry has another one if the elements were rounded."""
    masked: bool
    k: int | None
    """Parameter of the mask's code; None if stored dense."""


@dataclass(frozen=True)
class Layout:
    """All tensors of the model, and the further names of tied ones."""

    tensors: dict[str, Stored]
    tied: dict[str, str]


def values_name(name: str, stored: Stored) -> str:
    """The entry with the tensor's elements."""
    return name if stored.k is None else f"{name}:values"


def mask_name(name: str) -> str:
    """The entry with the code of a packed tensor's mask."""
    return f"{name}:mask"


def layout_to_json(layout: Layout, entry_dtypes: Mapping[str, torch.dtype]) -> str:
    """What is to be said beside the entries."""
    records = {}
    for name, stored in layout.tensors.items():
        record: dict[str, Any] = {}
        if stored.k is not None:
            record |= {"shape": list(stored.shape), "k": stored.k}
        if stored.masked:
            record |= {"mask": True}
        if stored.dtype != entry_dtypes[values_name(name, stored)]:
            record |= {"dtype": DTYPE_NAMES[stored.dtype]}
        if record:
            records[name] = record
    return json.dumps({"version": VERSION, "tensors": records, "tied": layout.tied}, separators=(",", ":"))


def layout_of(header: Header) -> Layout:
    """The layout of a file, with every entry accounted for and every length checked against the others."""
    if KEY not in header.metadata:
        raise ValueError("is a safetensors file, but not a packed one of granet.save")
    content = parse_json(header.metadata[KEY], "layout")
    if content.get("version") != VERSION:
        raise ValueError(f"is of version {shown(content.get('version'))}, this granet reads version {VERSION}")
    if content.keys() != {"version", "tensors", "tied"} or not all(
        isinstance(content[part], dict) for part in ("tensors", "tied")
    ):
        raise ValueError("its layout must have tensors and tied")

    left = dict(header.entries)
    tensors = {name: _stored(name, record, left) for name, record in content["tensors"].items()}
    for name, entry in left.items():
        if name in tensors:
            raise ValueError(f"{shown(name)}: is there both packed and dense")
        tensors[name] = Stored(entry.shape, entry.dtype, masked=False, k=None)
    for name, first in content["tied"].items():
        if name in tensors or not isinstance(first, str) or first not in tensors:
            raise ValueError(f"{shown(name)}: cannot be another name of {shown(first)}")
    return Layout(tensors, content["tied"])


def _stored(name: str, record: Any, left: dict[str, Entry]) -> Stored:
    """What a record says, its entries taken out of `left`."""
    packed = isinstance(record, dict) and {"shape", "k"} <= record.keys()
    if not isinstance(record, dict) or record.keys() - {"mask", "dtype"} != ({"shape", "k"} if packed else set()):
        raise ValueError(f"{shown(name)}: its record {shown(record)} must have shape and k, mask, or dtype")
    k, masked, dtype = record.get("k"), record.get("mask", False), record.get("dtype")
    if packed and (type(k) is not int or not 0 <= k <= LARGEST_K):
        raise ValueError(f"{shown(name)}: k={shown(k)} must be a number from 0 to {LARGEST_K}")
    if packed and not is_shape(record["shape"]):
        raise ValueError(f"{shown(name)}: {shown(record['shape'])} is not a shape")
    if not isinstance(masked, bool) or not (dtype is None or (isinstance(dtype, str) and dtype in DTYPES)):
        raise ValueError(f"{shown(name)}: its record {shown(record)} must have mask true and dtype a dtype's name")

    values = left.pop(f"{name}:values" if packed else name, None)
    if values is None:
        raise ValueError(f"{shown(name)}: is in the layout, but its elements are missing")
    shape = tuple(record["shape"]) if packed else values.shape
    if packed:
        code = left.pop(mask_name(name), None)
        if code is None or code.dtype != torch.uint8 or len(code.shape) != 1:
            raise ValueError(f"{shown(name)}: its mask must be there as one row of U8")
        if len(values.shape) != 1 or values.shape[0] > math.prod(shape):
            raise ValueError(f"{shown(name)}: {shown(values.shape)} elements do not fit the shape {shown(shape)}")
    before = values.dtype if dtype is None else DTYPES[dtype]
    if before != values.dtype and not (values.dtype == torch.bfloat16 and before in ROUNDED):
        raise ValueError(f"{shown(name)}: {before} cannot have been rounded to {values.dtype}")
    return Stored(shape, before, masked, k)

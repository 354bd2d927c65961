"""Packed sparse files: a model's state with the zeros left out, as safetensors.

    granet.save(model, "model.safetensors", sparsifier)
    masks = granet.load(model, "model.safetensors")

Only the active elements of a sparse weight are stored, with a code that says where they are. The file comes back bit
for bit, masks included. Loading needs nothing of granet but this package and the small modules it imports;
`docs/file-format.md` says how to read a file without granet.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from granet.checkpoint.layout import (
    LARGEST_TABLE,
    MASKS,
    ROUNDED,
    TABLE,
    Code,
    Stored,
    Table,
    check_rows,
    compress_table,
    decompress_table,
    tensors_by_name,
)
from granet.checkpoint.mask_codes import MaskCode, decode_mask, encode_mask
from granet.checkpoint.model_state import first_names, model_state
from granet.checkpoint.safetensors_file import DTYPE_NAMES, read_bytes, read_header, read_rows, shown, write_file
from granet.error_line import and_more
from granet.given_masks import Masked, check_masks, given_masks
from granet.names import plain_name

_CODE_COST = 16  # the most bytes by which a code lengthens the compressed table


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    sparsifier: Masked | None = None,
    *,
    masks: Mapping[str, Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write all parameters and buffers of `model` to a packed file, whole or not at all.

    Args:
        sparsifier: its masks decide what is stored of a weight, and are stored with it: an active zero stays active.
            Without one, every element whose bits are not all zero is stored.
        masks: the same as bool tensors by parameter name, for example those that :func:`load` returned.
        dtype: `torch.bfloat16` rounds the elements of weights (`float32` and `float64` parameters of two or more
            dimensions) to two bytes each; biases, norms and buffers keep every bit. By default nothing is rounded.
    """
    if dtype not in (None, torch.bfloat16):
        raise ValueError(f"dtype={dtype!r}: must be torch.bfloat16, or None to keep every bit")
    cure = "; sparsifier.apply_to(model) makes it so, also in an average of weights, and finish() for vd"
    masks = given_masks(sparsifier, masks)
    _check_order(model, "granet.save(model, path, sparsifier)")
    state = model_state(model)
    firsts = first_names(state)
    found = _masks_by_first_name(masks, state, firsts, cure if sparsifier is not None else "")
    weights = {plain_name(name) for name, weight in model.named_parameters() if weight.ndim > 1}

    table: Table = {}
    rows: dict[str, list[Tensor]] = defaultdict(list)
    for name, first in firsts.items():
        if name != first:
            table[name] = first
            continue
        kept = state[name].dtype
        rounded = dtype if dtype is not None and name in weights and kept in ROUNDED else kept
        table[name], values, code = _pack(state[name], found.get(name), rounded)
        rows[DTYPE_NAMES[rounded]].append(values)
        if code is not None:
            rows[MASKS].append(code)
    rows[TABLE].append(torch.frombuffer(bytearray(compress_table(table)), dtype=torch.uint8))
    write_file(Path(path), rows)


def load(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a packed file into `model` and return the masks that were saved with it, by parameter name.

    Names, shapes and dtypes must be those of the model. ValueError if they are not or if the file is damaged; the model
    is then as it was. Masks are bool tensors on the devices of their weights; a sparsifier that is already attached is
    not told.
    """
    _check_order(model, "granet.load(model, path)")
    state = model_state(model)
    for name, tensor in state.items():
        sides = zip(tensor.shape, tensor.stride(), strict=True)
        if tensor.numel() and any(size > 1 and stride == 0 for size, stride in sides):
            raise ValueError(f"model: {name!r} is expanded, elements of it are one; clone() it, to load into it")
    with _naming(os.fspath(path)):
        loaded, masks = _read(path, state)
        for name, first in first_names(state).items():
            if name != first and not torch.equal(_bits(loaded[name]), _bits(loaded[first])):
                raise ValueError(f"{name!r} and {first!r} differ, but are one tensor in the model")
    model.load_state_dict({key: loaded[plain_name(key)] for key in model.state_dict()})
    return {name: mask.to(state[name].device) for name, mask in masks.items()}


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The state dict and the masks in a packed file, without a model. Tied names share one tensor.

    Memory is taken for what the file declares: at most 2048 elements for each of its bytes.
    """
    with _naming(os.fspath(path)):
        return _read(path, None)


def _check_order(model: nn.Module, call: str) -> None:
    """ValueError for a path where the model belongs: it came first once."""
    if isinstance(model, str | os.PathLike):
        raise ValueError(f"model={os.fspath(model)!r}: must be a torch.nn.Module; the model comes first, {call}")


def _read(
    path: str | os.PathLike[str], model: Mapping[str, Tensor] | None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    with Path(path).open("rb") as file:
        header = read_header(file)
        compressed = read_bytes(file, header, TABLE, LARGEST_TABLE)
        table = decompress_table(compressed)
        check_rows(table, header.rows)
        if model is not None:
            _check_fit(table, model)
        rows = read_rows(file, header)
    if rows[TABLE].numpy().tobytes() != compressed:  # the checksum is of this second reading
        raise ValueError("changed while it was read")
    state: dict[str, Tensor] = {}
    masks: dict[str, Tensor] = {}
    for name, stored in table.items():
        if isinstance(stored, str):
            state[name] = state[stored]
            continue
        values = _take(rows, stored.row, stored.length)
        code = None if stored.code is None else MaskCode(stored.code.k, _take(rows, MASKS, stored.code.length))
        with _naming(shown(name)):
            state[name], mask = _unpack(stored, values, code)
        if mask is not None:
            masks[name] = mask
    return state, masks


def _take(rows: dict[str, Tensor], name: str, length: int) -> Tensor:
    """The next elements of a row, which are then no longer in it."""
    taken, rows[name] = rows[name][:length], rows[name][length:]
    return taken


def _pack(tensor: Tensor, mask: Tensor | None, dtype: torch.dtype) -> tuple[Stored, Tensor, Tensor | None]:
    """How the tensor is stored, its elements and its code: dense or packed, whichever is smaller."""
    # A copy, because a tensor that calls itself contiguous may still have odd strides along sides of length 0 and 1.
    # It also has the values of a lazy conjugate or negative.
    dense = tensor.cpu().clone(memory_format=torch.contiguous_format).to(dtype)
    bits = _bits(dense)
    active = bits != 0 if mask is None else mask.reshape(-1).cpu()
    stored = Stored(tuple(tensor.shape), tensor.dtype, DTYPE_NAMES[dtype], masked=mask is not None, code=None)
    if not bool(active.all()):
        packed = encode_mask(active)
        values = bits[active].view(dtype)
        if mask is not None or values.nbytes + packed.code.nbytes + _CODE_COST < dense.nbytes:
            return replace(stored, code=Code(packed.k, len(values), len(packed.code))), values, packed.code
    return stored, dense, None


def _unpack(stored: Stored, values: Tensor, code: MaskCode | None) -> tuple[Tensor, Tensor | None]:
    """The tensor, in memory of its own, and its mask if it has one."""
    if code is None:
        dense = values.to(stored.dtype, copy=True).view(stored.shape)
        return dense, torch.ones(stored.shape, dtype=torch.bool, device="cpu") if stored.masked else None
    positions = decode_mask(code, len(values), math.prod(stored.shape))
    tensor = torch.zeros(stored.shape, dtype=stored.dtype, device="cpu")
    _bits(tensor)[positions] = _bits(values.to(stored.dtype))
    if not stored.masked:
        return tensor, None
    mask = torch.zeros(stored.shape, dtype=torch.bool, device="cpu")
    mask.view(-1)[positions] = True
    return tensor, mask


def _bits(tensor: Tensor) -> Tensor:
    """A contiguous tensor's elements in one row, as integers: bits, which compare and copy alike in every dtype."""
    return tensor.view(-1).view(getattr(torch, f"int{8 * tensor.element_size()}"))


def _masks_by_first_name(
    masks: Mapping[str, Tensor] | None, state: Mapping[str, Tensor], firsts: Mapping[str, str], cure: str = ""
) -> dict[str, Tensor]:
    """The masks, each checked against its weight; the error for a weight that is not zero outside says what to do."""
    found: dict[str, Tensor] = {}
    for key, name, mask in check_masks({} if masks is None else masks, state, firsts):
        weight = state[name]
        if bool(((weight != 0) & ~mask.to(weight.device)).any()):
            raise ValueError(f"masks[{key!r}]: its weight must be zero everywhere outside the mask{cure}")
        found[name] = mask
    return found


def _check_fit(table: Table, model: Mapping[str, Tensor]) -> None:
    """ValueError unless the file holds the names, shapes and dtypes of the model."""
    there = tensors_by_name(table)
    if missing := [name for name in model if name not in there]:
        raise ValueError(f"is of another model: it has no {shown(missing[0])}{and_more(missing)}")
    if unexpected := [name for name in there if name not in model]:
        raise ValueError(
            f"is of another model: it has {shown(unexpected[0])}{and_more(unexpected)}, this model has not"
        )
    for name, tensor in model.items():
        shape, dtype = there[name].shape, there[name].dtype
        if shape != tensor.shape:
            raise ValueError(f"{name!r}: has shape {shown(shape)}, in this model {tuple(tensor.shape)}")
        if dtype != tensor.dtype:
            raise ValueError(f"{name!r}: is {dtype}, in this model {tensor.dtype}; convert the model after loading")


@contextmanager
def _naming(what: object) -> Iterator[None]:
    """Errors begin with what they are about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error

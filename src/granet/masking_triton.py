"""Zeroing the inactive elements of all layers, or looking whether all are finite, in one launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet import layer_table as tables

_INTEGER = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}
_EXPONENT = {
    torch.float16: 0x7C00,
    torch.bfloat16: 0x7F80,
    torch.float32: 0x7F800000,
    torch.float64: 0x7FF0000000000000,
}


@triton.jit
def _zero_inactive(table, pieces, INTEGER: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr):
    layer = tl.load(pieces + 2 * tl.program_id(0))
    start = tl.load(pieces + 2 * tl.program_id(0) + 1)
    tensor = tl.load(table + 3 * layer).to(tl.pointer_type(INTEGER))
    mask = tl.load(table + 3 * layer + 1).to(tl.pointer_type(tl.uint8))
    size = tl.load(table + 3 * layer + 2)
    for step in range(0, PIECE, BLOCK):
        offsets = start + step + tl.arange(0, BLOCK)
        inactive = tl.load(mask + offsets, mask=offsets < size, other=1) == 0
        tl.store(tensor + offsets, tl.zeros([BLOCK], INTEGER), mask=inactive)


@triton.jit
def _find_infinite(table, pieces, found, EXPONENT: tl.constexpr, INTEGER: tl.constexpr, PIECE: tl.constexpr,
                   BLOCK: tl.constexpr):  # fmt: skip
    layer = tl.load(pieces + 2 * tl.program_id(0))
    start = tl.load(pieces + 2 * tl.program_id(0) + 1)
    tensor = tl.load(table + 3 * layer).to(tl.pointer_type(INTEGER))
    size = tl.load(table + 3 * layer + 2)
    seen = tl.zeros([BLOCK], tl.int32)
    for step in range(0, PIECE, BLOCK):
        offsets = start + step + tl.arange(0, BLOCK)
        bits = tl.load(tensor + offsets, mask=offsets < size, other=0)
        seen |= ((bits & EXPONENT) == EXPONENT).to(tl.int32)  # all ones: infinite or NaN
    if tl.max(seen, 0) > 0:
        tl.store(found, 1)


def zero_inactive(tensors: Sequence[Tensor], masks: Sequence[Tensor]) -> None:
    """In place, for tensors of one device and dtype that lie in memory as their masks do."""
    device = tensors[0].device
    table = tables.layer_table(tensors, masks)
    pieces, _, _ = tables.pieces([tensor.numel() for tensor in tensors], device)
    with torch.cuda.device_of(tensors[0]):
        _zero_inactive[(len(pieces),)](
            table, pieces, INTEGER=_INTEGER[tensors[0].element_size()], PIECE=tables.PIECE, BLOCK=tables.BLOCK
        )


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether no element is infinite or NaN, for tensors of one device and dtype."""
    tensors = [tensor if tensor.is_contiguous() else tensor.contiguous() for tensor in tensors]
    first = tensors[0]
    pieces, _, _ = tables.pieces([tensor.numel() for tensor in tensors], first.device)
    found = torch.zeros((), dtype=torch.int32, device=first.device)
    with torch.cuda.device_of(first):
        _find_infinite[(len(pieces),)](
            tables.layer_table(tensors, tensors), pieces, found, EXPONENT=_EXPONENT[first.dtype],
            INTEGER=_INTEGER[first.element_size()], PIECE=tables.PIECE, BLOCK=tables.BLOCK,
        )  # fmt: skip
    return found == 0

"""Zeroing the inactive elements of all layers, or checking whether all are finite, in one launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet.kernels.launch import launch
from granet.kernels.layer_table import tables
from granet.kernels.pieces import address, place_in_row, this_piece
from granet.tensors.row import Row

_INTEGER = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}
_EXPONENT = {
    torch.float16: 0x7C00,
    torch.bfloat16: 0x7F80,
    torch.float32: 0x7F800000,
    torch.float64: 0x7FF0000000000000,
}


@triton.jit
def _zero_inactive(tensors, masks, pieces, INTEGER: tl.constexpr, CUT: tl.constexpr):
    layer, start, length = this_piece(pieces, CUT)
    tensor = address(tensors, layer, start, INTEGER, CUT)
    mask = address(masks, layer, start, tl.uint8, CUT)
    for step in range(0, CUT.piece, CUT.block):
        offsets = step + tl.arange(0, CUT.block)
        inactive = tl.load(mask + offsets, mask=offsets < length, other=1) == 0
        tl.store(tensor + offsets, tl.zeros_like(offsets).to(INTEGER), mask=inactive)


@triton.jit
def _see_finite(tensors, pieces, finite, EXPONENT: tl.constexpr, INTEGER: tl.constexpr, CUT: tl.constexpr):
    """``finite`` becomes 0 if an element is infinite or NaN."""
    layer, start, length = this_piece(pieces, CUT)
    tensor = address(tensors, layer, start, INTEGER, CUT)
    BLOCK: tl.constexpr = CUT.block
    seen = tl.zeros([BLOCK], tl.int32)
    for step in range(0, CUT.piece, CUT.block):
        offsets = step + tl.arange(0, CUT.block)
        bits = tl.load(tensor + offsets, mask=offsets < length, other=0)
        seen |= ((bits & EXPONENT) == EXPONENT).to(tl.int32)  # all ones: infinite or NaN
    if tl.max(seen, 0) > 0:
        tl.store(finite, 0)


@triton.jit
def _take_dense(tensors, masks, copies, pieces, finite, EXPONENT: tl.constexpr, INTEGER: tl.constexpr,
                CUT: tl.constexpr):  # fmt: skip
    """Both of the above, after a copy is made; the copies lie in one row."""
    layer, start, length = this_piece(pieces, CUT)
    tensor = address(tensors, layer, start, INTEGER, CUT)
    mask = address(masks, layer, start, tl.uint8, CUT)
    copy = copies.to(tl.pointer_type(INTEGER), bitcast=True) + place_in_row(pieces, CUT)
    BLOCK: tl.constexpr = CUT.block
    seen = tl.zeros([BLOCK], tl.int32)
    for step in range(0, CUT.piece, CUT.block):
        offsets = step + tl.arange(0, CUT.block)
        inside = offsets < length
        bits = tl.load(tensor + offsets, mask=inside, other=0)
        active = tl.load(mask + offsets, mask=inside, other=1) != 0
        tl.store(copy + offsets, bits, mask=inside)
        tl.store(tensor + offsets, tl.where(active, bits, 0), mask=inside)
        seen |= ((bits & EXPONENT) == EXPONENT).to(tl.int32)
    if tl.max(seen, 0) > 0:
        tl.store(finite, 0)


def zero_inactive(tensors: Sequence[Tensor], masks: Sequence[Tensor]) -> None:
    """In place, for tensors of one device and dtype that lie in memory as their masks do."""
    arguments, cut = tables(tensors, masks)
    with torch.cuda.device_of(arguments[-1]):
        launch(_zero_inactive, len(arguments[-1]), arguments, _INTEGER[tensors[0].element_size()], cut)


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether no element is infinite or NaN, for tensors of one device and dtype."""
    tensors = [tensor.contiguous() for tensor in tensors]
    dtype = tensors[0].dtype
    (where, pieces), cut = tables(tensors)
    finite = torch.ones((), dtype=torch.bool, device=pieces.device)
    with torch.cuda.device_of(pieces):
        arguments = where, pieces, finite.view(torch.uint8)
        launch(_see_finite, len(pieces), arguments, _EXPONENT[dtype], _INTEGER[dtype.itemsize], cut)
    return finite


def take_dense(tensors: Sequence[Tensor], masks: Sequence[Tensor]) -> tuple[Row, Tensor]:
    """Copies, and whether they are finite; then as :func:`zero_inactive`, and for the same tensors."""
    dtype = tensors[0].dtype
    (where, of_masks, pieces), cut = tables(tensors, masks)
    row = torch.empty(sum(map(Tensor.numel, tensors)), dtype=dtype, device=pieces.device)
    finite = torch.ones((), dtype=torch.bool, device=pieces.device)
    with torch.cuda.device_of(pieces):
        arguments = where, of_masks, row, pieces, finite.view(torch.uint8)
        launch(_take_dense, len(pieces), arguments, _EXPONENT[dtype], _INTEGER[dtype.itemsize], cut)
    return Row(row, masks), finite

"""How a kernel finds its way in the tables of ``layer_table.py``."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def this_piece(pieces, CUT: tl.constexpr):
    """This program's layer, where in it the program's piece begins, and how long that is."""
    ALIGNED: tl.constexpr = CUT.aligned
    row = pieces + 8 * tl.program_id(0)
    start = tl.multiple_of(tl.load(row + 1), ALIGNED)
    return tl.load(row), start, tl.multiple_of(tl.load(row + 2).to(tl.int32), ALIGNED)


@triton.jit
def pieces_of_layer(pieces):
    """How many programs share this program's layer."""
    return tl.load(pieces + 8 * tl.program_id(0) + 3)


@triton.jit
def place_in_row(pieces, CUT: tl.constexpr):
    """Where this program's piece begins if all layers lie in one row."""
    ALIGNED: tl.constexpr = CUT.aligned
    return tl.multiple_of(tl.load(pieces + 8 * tl.program_id(0) + 4), ALIGNED)


@triton.jit
def place_in_whole(pieces, position):
    """Where in the whole weight a position in this program's layer is, if that is a part of one."""
    part = pieces + 8 * tl.program_id(0) + 5
    return tl.load(part) + position + position // tl.load(part + 1) * tl.load(part + 2)


@triton.jit
def address(addresses, layer, start, TYPE: tl.constexpr, CUT: tl.constexpr):
    """Where a piece of a layer's tensor begins."""
    ALIGNED: tl.constexpr = CUT.aligned
    return tl.multiple_of(tl.load(addresses + layer).to(tl.pointer_type(TYPE)), ALIGNED) + start

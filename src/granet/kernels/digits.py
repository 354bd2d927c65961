"""The digits of the keys that the Triton kernels search by, and how they are counted."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

DIGITS = (6, 6, 10, 9)
"""Bits of the digits of a key, 31 in all. The first two are counted by histograms of whole blocks, whose cost grows
with the bins. Few keys share two digits, so that the others can be counted one by one, however many bins there are."""
ROWS = sum(1 << width for width in DIGITS)


class Step(NamedTuple):
    """What the kernels know of one launch of a search, as one argument: every argument makes a launch slower."""

    round: int
    width: int
    """Bits of the digit that is counted."""
    shift: int
    """Bits of the digits that follow."""
    before: int
    """Bits of the digit that was counted before."""
    row: int
    """Bins of all digits before."""
    rounds: int = len(DIGITS)
    rows: int = ROWS
    """Bins of all digits."""


*STEPS, END = (
    Step(i, width, sum(DIGITS[i + 1 :]), DIGITS[i - 1], sum(1 << before for before in DIGITS[:i]))
    for i, width in enumerate((*DIGITS, 0))
)


@triton.jit
def keys_at(scores, mask, offsets, length, AMONG: tl.constexpr):
    """Keys and candidacy at ``offsets`` of a piece."""
    inside = offsets < length
    candidate = inside & (tl.load(mask + offsets, mask=inside, other=1 - AMONG) == AMONG)
    value = tl.load(scores + offsets, mask=inside, other=0.0).to(tl.float32)
    key = tl.minimum(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0x7F800001)  # one for all NaNs
    return tl.where(candidate, key, 0), candidate


@triton.jit
def count_digit(
    scores, mask, length, prefix, row, part, STEP: tl.constexpr, PARTS: tl.constexpr,
    AMONG: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Add a piece's candidates that begin with ``prefix``, by their next digit, to ``row`` and, if PARTS, to ``part``.

    Added one by one, equal scores would queue up at their bin. So where many in a block share the prefix, all those
    with one digit are added together: first the digit of the last of them, which is likely to be a frequent one, then
    that of the last remaining one.
    """
    BINS: tl.constexpr = 1 << STEP.width
    bins = tl.arange(0, BINS)
    place = tl.arange(0, CUT.block)
    prefix = prefix.to(tl.int32)
    if STEP.round < 2:
        found = tl.zeros([BINS], tl.int32)
        for step in range(0, CUT.piece, CUT.block):
            key, here = keys_at(scores, mask, step + place, length, AMONG)
            if STEP.round > 0:
                here = here & (key >> STEP.shift + STEP.width == prefix)
            found += tl.histogram((key >> STEP.shift) & (BINS - 1), BINS, mask=here)
        tl.atomic_add(row + bins, found.to(tl.int64), mask=found > 0, sem="relaxed")
    else:
        for step in range(0, CUT.piece, CUT.block):
            key, here = keys_at(scores, mask, step + place, length, AMONG)
            here = here & (key >> STEP.shift + STEP.width == prefix)
            digit = (key >> STEP.shift) & (BINS - 1)
            many = tl.sum(here.to(tl.int32), 0)
            tries = 0
            while (many > CUT.block // 8) & (tries < 8):
                last = tl.max(tl.where(here, place * BINS + digit, 0), 0) & (BINS - 1)
                some = tl.sum((here & (digit == last)).to(tl.int32), 0)
                tl.atomic_add(row + last, some.to(tl.int64), sem="relaxed")
                if PARTS:
                    tl.atomic_add(part + last, some, sem="relaxed")
                here = here & (digit != last)
                many -= some
                tries += 1
            tl.atomic_add(row + digit, 1, mask=here, sem="relaxed")
            if PARTS:
                tl.atomic_add(part + digit, 1, mask=here, sem="relaxed")

"""The digits that the Triton kernels search by, and how they are counted."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from granet.kernels.pieces import place_in_whole
from granet.tensors.part import Reduce

KEY = (6, 6, 10, 9)
"""Bits of the digits of a key, 31 in all. The first two are counted by histograms of whole blocks, whose cost grows
with the bins. Few keys share two digits, so that the others can be counted one by one, however many bins there are."""
PLACE = (9, 9, 9, 9)
"""Bits of the digits of a place in a whole weight, by which ties are told apart that lie on several ranks."""


class Step(NamedTuple):
    """What the kernels know of one launch of a search, as one argument: every argument makes a launch slower."""

    round: int
    width: int
    """Bits of the digit that is counted."""
    shift: int
    """Bits of the digits of the same value that follow."""
    before: int
    """Bits of the digit that was counted before."""
    row: int
    """Bins of all digits before."""
    rounds: int
    rows: int
    """Bins of all digits."""
    keys: int = len(KEY)
    """Rounds that count digits of keys; the others count places."""
    places: int = sum(PLACE)
    """Bits of a place."""


def _steps(*values: tuple[int, ...]) -> tuple[Step, ...]:
    """The launches of a search by the digits of these values, one after the other, and what follows the last."""
    widths = [width for digits in values for width in digits]
    shifts = [sum(digits[i + 1 :]) for digits in values for i in range(len(digits))]
    rows = list(accumulate((1 << width for width in widths), initial=0))
    before = (0, *widths)
    return tuple(
        Step(i, width, shift, before[i], rows[i], len(widths), rows[-1])
        for i, (width, shift) in enumerate(zip((*widths, 0), (*shifts, 0), strict=True))
    )


KEYS = _steps(KEY)
KEYS_AND_PLACES = _steps(KEY, PLACE)
"""Where ranks hold parts of the weights: which ties come first is not known to any of them alone."""


def sum_rows(reduce: Reduce, numbers: Tensor, layers: int, step: Step) -> None:
    """Let the rows of a digit, which begin at ``step.row`` for all layers, be sums over ranks."""
    rows = numbers[layers * step.row : layers * (step.row + (1 << step.width))].view(layers, -1)
    rows.copy_(reduce(rows))


@triton.jit
def keys_at(scores, mask, offsets, length, AMONG: tl.constexpr):
    """Keys and candidacy at ``offsets`` of a piece."""
    inside = offsets < length
    candidate = inside & (tl.load(mask + offsets, mask=inside, other=1 - AMONG) == AMONG)
    value = tl.load(scores + offsets, mask=inside, other=0.0).to(tl.float32)
    key = tl.minimum(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0x7F800001)  # one for all NaNs
    return tl.where(candidate, key, 0), candidate


@triton.jit
def earliness(pieces, position, STEP: tl.constexpr):
    """A number of ``STEP.places`` bits that is the larger, the earlier a position of the layer is in the whole."""
    return ((1 << STEP.places) - 1) - place_in_whole(pieces, position)


@triton.jit
def count_digit(
    scores, mask, pieces, start, length, threshold, prefix, row, part, STEP: tl.constexpr,
    AMONG: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Add a piece's candidates that begin with ``prefix``, by their next digit, to ``row`` and, if given, to ``part``.

    In the rounds that count places, only those with the key ``threshold``.

    Added one by one, equal scores would queue up at their bin. So where many in a block share the prefix, all those
    with one digit are added together: first the digit of the last of them, which is likely to be a frequent one, then
    that of the last remaining one.
    """
    BINS: tl.constexpr = 1 << STEP.width
    bins = tl.arange(0, BINS)
    place = tl.arange(0, CUT.block)
    if STEP.round < 2:
        found = tl.zeros([BINS], tl.int32)
        for step in range(0, CUT.piece, CUT.block):
            key, here = keys_at(scores, mask, step + place, length, AMONG)
            if STEP.round > 0:
                here = here & (key >> STEP.shift + STEP.width == prefix.to(tl.int32))
            found += tl.histogram((key >> STEP.shift) & (BINS - 1), BINS, mask=here)
        tl.atomic_add(row + bins, found.to(tl.int64), mask=found > 0, sem="relaxed")
    else:
        for step in range(0, CUT.piece, CUT.block):
            value, here = keys_at(scores, mask, step + place, length, AMONG)
            if STEP.round < STEP.keys:
                here = here & (value >> STEP.shift + STEP.width == prefix.to(tl.int32))
                digit = (value >> STEP.shift) & (BINS - 1)
            else:
                early = earliness(pieces, start + step + place, STEP)
                here = here & (value == threshold) & (early >> STEP.shift + STEP.width == prefix)
                digit = ((early >> STEP.shift) & (BINS - 1)).to(tl.int32)
            many = tl.sum(here.to(tl.int32), 0)
            tries = 0
            while (many > CUT.block // 8) & (tries < 8):
                last = tl.max(tl.where(here, place * BINS + digit, 0), 0) & (BINS - 1)
                some = tl.sum((here & (digit == last)).to(tl.int32), 0)
                tl.atomic_add(row + last, some.to(tl.int64), sem="relaxed")
                if part is not None:
                    tl.atomic_add(part + last, some, sem="relaxed")
                here = here & (digit != last)
                many -= some
                tries += 1
            tl.atomic_add(row + digit, 1, mask=here, sem="relaxed")
            if part is not None:
                tl.atomic_add(part + digit, 1, mask=here, sem="relaxed")

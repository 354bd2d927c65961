"""The selection as Triton kernels over a table of layers: no copy of the weights, no host wait, few launches.

The same digit-by-digit search as in ``selection.py``, and the same outcome bit for bit. A launch counts one digit for
all layers; the next launch begins by reading off which digit it is, each program for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet import layer_table as tables
from granet.piece_triton import address, pieces_of_layer, this_piece

DIGITS = (6, 6, 10, 9)
"""Bits of the digits of a key, 31 in all. The first two are counted by histograms of whole blocks, whose cost grows
with the bins. Few keys share two digits, so that the others can be counted one by one, however many bins there are."""
ROUNDS = len(DIGITS)
ROWS = sum(1 << width for width in DIGITS)
"""Bins of all digits."""

_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


class _Round(NamedTuple):
    """What the kernels know of one launch of a search, all at once: a launch takes time for each argument."""

    number: int
    width: int
    """Of the digit that is counted, in bits."""
    shift: int
    """Bits of the digits that follow."""
    before: int
    """Width of the digit that was counted before."""
    row: int
    """Bins of all digits before."""
    rounds: int = ROUNDS
    rows: int = ROWS


*_SEARCH, _END = (
    _Round(i, width, sum(DIGITS[i + 1 :]), DIGITS[i - 1], sum(1 << before for before in DIGITS[:i]))
    for i, width in enumerate((*DIGITS, 0))
)


@triton.jit
def _keys(scores, mask, offsets, length, AMONG: tl.constexpr):
    """Keys and candidacy at ``offsets`` of a piece."""
    inside = offsets < length
    candidate = inside & (tl.load(mask + offsets, mask=inside, other=1 - AMONG) == AMONG)
    value = tl.load(scores + offsets, mask=candidate, other=0.0).to(tl.float32)
    key = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.minimum(key, 0x7F800001), candidate  # one key for all NaNs


@triton.jit
def _count(
    scores, mask, length, prefix, row, part, STEP: tl.constexpr, PARTS: tl.constexpr,
    AMONG: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add a piece's candidates that begin with ``prefix``, by their next digit, to ``row`` (and to ``part``)."""
    ROUND: tl.constexpr = STEP[0]
    BINS: tl.constexpr = 1 << STEP[1]
    SHIFT: tl.constexpr = STEP[2]
    REST: tl.constexpr = STEP[1] + STEP[2]
    bins = tl.arange(0, BINS)
    prefix = prefix.to(tl.int32)
    if ROUND < 2:
        found = tl.zeros([BINS], tl.int32)
        for step in range(0, PIECE, BLOCK):
            key, here = _keys(scores, mask, step + tl.arange(0, BLOCK), length, AMONG)
            if ROUND > 0:
                here = here & (key >> REST == prefix)
            found += tl.histogram((key >> SHIFT) & (BINS - 1), BINS, mask=here)
        tl.atomic_add(row + bins, found.to(tl.int64), mask=found > 0, sem="relaxed")
    else:
        place = tl.arange(0, BLOCK)
        for step in range(0, PIECE, BLOCK):
            key, here = _keys(scores, mask, step + tl.arange(0, BLOCK), length, AMONG)
            here = here & (key >> REST == prefix)
            digit = (key >> SHIFT) & (BINS - 1)
            many = tl.sum(here.to(tl.int32), 0)
            tries = 0
            while (many > BLOCK // 8) & (tries < 8):  # equal scores would queue up at their bin, one by one
                alike = tl.max(tl.where(here, place * BINS + digit, 0), 0) & (BINS - 1)  # as the last one is
                some = tl.sum((here & (digit == alike)).to(tl.int32), 0)
                tl.atomic_add(row + alike, some.to(tl.int64), sem="relaxed")
                if PARTS:
                    tl.atomic_add(part + alike, some.to(tl.int64), sem="relaxed")
                here = here & (digit != alike)
                many -= some
                tries += 1
            tl.atomic_add(row + digit, 1, mask=here, sem="relaxed")
            if PARTS:
                tl.atomic_add(part + digit, 1, mask=here, sem="relaxed")


# Each layer for itself. Numbers of the search, all zero at first: [layers] rows of each digit (the first one may lie
# elsewhere), [rounds, layers] pairs of prefix and winners left, then [pieces] rows of the last digit.


@triton.jit
def _narrow(counts, leading, numbers, layers, layer, STEP: tl.constexpr):
    """What the winners' least key begins with, by the digits counted so far; how many win of those that do."""
    ROUND: tl.constexpr = STEP[0]
    BEFORE: tl.constexpr = STEP[3]
    BINS: tl.constexpr = 1 << BEFORE
    ROW: tl.constexpr = STEP[4]
    ROWS: tl.constexpr = STEP[6]
    bins = tl.arange(0, BINS)
    if ROUND == 1:
        row = tl.load(leading + layer * BINS + bins)
        prefix = layer * 0
        left = tl.minimum(tl.load(counts + layer), tl.sum(row, 0))
    else:
        row = tl.load(numbers + layers * (ROW - BINS) + layer * BINS + bins)
        pair = numbers + layers * ROWS + 2 * (layers * (ROUND - 1) + layer)
        prefix = tl.load(pair)
        left = tl.load(pair + 1)
    digit = tl.sum((tl.cumsum(row, 0, reverse=True) >= left).to(tl.int32), 0) - 1  # none left: a key above all others
    left -= tl.sum(tl.where(bins > digit, row, 0), 0)
    return (prefix << BEFORE) | digit, left


@triton.jit
def _search_layers(
    tensors, masks, pieces, counts, leading, numbers, layers,
    STEP: tl.constexpr, AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One digit of :meth:`select`: every layer looks for its own ``counts[layer]``-th largest key."""
    ROUND: tl.constexpr = STEP[0]
    BINS: tl.constexpr = 1 << STEP[1]
    ROW: tl.constexpr = STEP[4]
    ROUNDS: tl.constexpr = STEP[5]
    ROWS: tl.constexpr = STEP[6]
    layer, start, length = this_piece(pieces)
    scores = address(tensors, layer, start, DTYPE)
    mask = address(masks, layer, start, tl.uint8)
    prefix = layer * 0
    if ROUND > 0:
        prefix, left = _narrow(counts, leading, numbers, layers, layer, STEP)
        if start == 0:  # once for the layer
            pair = numbers + layers * ROWS + 2 * (layers * ROUND + layer)
            tl.store(pair, prefix)
            tl.store(pair + 1, left)
    row = numbers + layers * ROW + layer * BINS
    part = numbers + layers * (ROWS + 2 * ROUNDS) + tl.program_id(0) * BINS
    _count(scores, mask, length, prefix, row, part, STEP, ROUND == ROUNDS - 1, AMONG, PIECE, BLOCK)


@triton.jit
def _mark(
    tensors, masks, pieces, counts, leading, numbers, layers,
    STEP: tl.constexpr, AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the outcome: keys above the layer's threshold win, and the first of those equal to it."""
    BINS: tl.constexpr = 1 << STEP[3]
    ROUNDS: tl.constexpr = STEP[5]
    ROWS: tl.constexpr = STEP[6]
    layer, start, length = this_piece(pieces)
    scores = address(tensors, layer, start, DTYPE)
    mask = address(masks, layer, start, tl.uint8)
    threshold, left = _narrow(counts, leading, numbers, layers, layer, STEP)
    ties = numbers + layers * (ROWS + 2 * ROUNDS) + (threshold & (BINS - 1))
    here = tl.program_id(0)
    piece = here - (start // PIECE).to(tl.int32)
    while piece < here:  # ties in earlier pieces of the layer go first
        earlier = piece + tl.arange(0, 128)
        left -= tl.sum(tl.load(ties + earlier * BINS, mask=earlier < here, other=0), 0)
        piece += 128
    own = tl.load(ties + here * BINS)
    some_win = (left > 0) & (left < own)  # of the ties in this piece, so that their order counts
    least = (threshold + (left < own).to(tl.int64)).to(tl.int32)
    for step in range(0, PIECE, BLOCK):
        offsets = step + tl.arange(0, BLOCK)
        key, candidate = _keys(scores, mask, offsets, length, AMONG)
        wins = key >= least
        if some_win:
            tied = (candidate & (key + 1 == least)).to(tl.int32)
            wins = wins | ((tied > 0) & (tl.cumsum(tied, 0) <= left))
            left -= tl.sum(tied, 0)
        changed = candidate & (wins.to(tl.int32) != AMONG)
        tl.store(mask + offsets, wins.to(tl.uint8), mask=changed)


# All layers together. Numbers of the search, all zero at first: [layers] rows of each digit, and as many that hold how
# many keys of the layer are larger; [rounds, layers] finished pieces; [layers] floors within reach. Then, of all
# layers: how many keys are kept by the next digit, the least and the most that can be kept, [rounds] prefixes.


@triton.jit
def _narrow_globally(total, numbers, layers, STEP: tl.constexpr):
    """What the least key that is kept begins with, by the digits counted so far; how many are kept in all."""
    ROUND: tl.constexpr = STEP[0]
    BEFORE: tl.constexpr = STEP[3]
    BINS: tl.constexpr = 1 << BEFORE
    ROW: tl.constexpr = STEP[4]
    ROUNDS: tl.constexpr = STEP[5]
    ROWS: tl.constexpr = STEP[6]
    shared = numbers + layers * (2 * ROWS + ROUNDS + 1)
    goal = tl.minimum(tl.maximum(tl.load(total), tl.load(shared + ROWS)), tl.load(shared + ROWS + 1))
    kept = tl.load(shared + ROW - BINS + tl.arange(0, BINS))
    digit = tl.sum((kept >= goal).to(tl.int32), 0) - 1
    return (tl.load(shared + ROWS + 1 + ROUND) << BEFORE) | digit, goal


@triton.jit
def _search_globally(
    tensors, masks, pieces, total, floors, numbers, layers,
    STEP: tl.constexpr, AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One digit of :meth:`global_counts`: all layers together look for one key.

    Whichever program finishes last in a layer adds up, for each digit, how many of the layer's keys are kept.
    """
    ROUND: tl.constexpr = STEP[0]
    BINS: tl.constexpr = 1 << STEP[1]
    BEFORE: tl.constexpr = STEP[3]
    ROW: tl.constexpr = STEP[4]
    ROUNDS: tl.constexpr = STEP[5]
    ROWS: tl.constexpr = STEP[6]
    layer, start, length = this_piece(pieces)
    scores = address(tensors, layer, start, DTYPE)
    mask = address(masks, layer, start, tl.uint8)
    shared = numbers + layers * (2 * ROWS + ROUNDS + 1)
    prefix = layer * 0
    if ROUND > 0:
        prefix, _ = _narrow_globally(total, numbers, layers, STEP)
        if tl.program_id(0) == 0:
            tl.store(shared + ROWS + 2 + ROUND, prefix)
    row = numbers + layers * ROW + layer * BINS
    _count(scores, mask, length, prefix, row, row, STEP, False, AMONG, PIECE, BLOCK)
    tl.debug_barrier()  # the whole program has added its part before it says so
    finished = numbers + layers * (2 * ROWS + ROUND) + layer
    if tl.atomic_add(finished, 1) == pieces_of_layer(pieces) - 1:
        bins = tl.arange(0, BINS)
        found = tl.load(row + bins, cache_modifier=".cg")
        larger = layer * 0
        if ROUND > 0:
            before = numbers + layers * (ROWS + ROW - (1 << BEFORE)) + (layer << BEFORE)
            larger = tl.load(before + (prefix & ((1 << BEFORE) - 1)))
        at_least = larger + tl.cumsum(found, 0, reverse=True)
        tl.store(numbers + layers * (ROWS + ROW) + layer * BINS + bins, at_least - found)
        floor_here = numbers + layers * (2 * ROWS + ROUNDS) + layer
        if ROUND == 0:
            there = tl.sum(found, 0)
            floor = tl.minimum(tl.load(floors + layer), there)
            tl.store(floor_here, floor)
            tl.atomic_add(shared + ROWS, floor, sem="relaxed")
            tl.atomic_add(shared + ROWS + 1, there, sem="relaxed")
        else:
            floor = tl.load(floor_here)
        tl.atomic_add(shared + ROW + bins, tl.maximum(at_least, floor), sem="relaxed")


@triton.jit
def _share(total, shares, numbers, layers, STEP: tl.constexpr, LAYERS: tl.constexpr):
    """The end of :meth:`global_counts`, as ``selection.fill`` does it: ties go to earlier layers first."""
    BINS: tl.constexpr = 1 << STEP[3]
    ROW: tl.constexpr = STEP[4]
    ROUNDS: tl.constexpr = STEP[5]
    ROWS: tl.constexpr = STEP[6]
    threshold, goal = _narrow_globally(total, numbers, layers, STEP)
    layer = tl.arange(0, LAYERS)
    there = layer < layers
    ties = numbers + layers * (ROW - BINS) + layer * BINS + (threshold & (BINS - 1))
    larger = tl.load(ties + layers * ROWS, mask=there, other=0)
    reached = larger + tl.load(ties, mask=there, other=0)
    floor = tl.load(numbers + layers * (2 * ROWS + ROUNDS) + layer, mask=there, other=0)
    least = tl.maximum(larger, floor)
    spare = tl.maximum(reached, floor) - least
    left = goal - tl.sum(least, 0) - (tl.cumsum(spare, 0) - spare)
    tl.store(shares + layer, least + tl.minimum(tl.maximum(left, 0), spare), mask=there)


class TritonRanking:
    """The candidates of layers on one CUDA device."""

    def __init__(self, scores: Sequence[Tensor], masks: Sequence[Tensor], among: bool) -> None:
        dtypes = {score.dtype for score in scores}
        common = torch.float32 if len(dtypes) > 1 else scores[0].dtype
        # Kept alive: the tables hold addresses. In logical order, whatever the layout.
        self._scores = [score.contiguous() for score in scores]
        if len(dtypes) > 1:
            self._scores = [score.to(common) for score in self._scores]
        self._pieces = tables.pieces(self._scores)
        self._tables = tables.addresses(self._scores), tables.addresses(masks), self._pieces
        self._leading: Tensor | None = None
        self._constants = int(among), _DTYPES[common], tables.PIECE, tables.BLOCK

    def select(self, counts: Tensor) -> None:
        layers, programs = len(self._scores), len(self._pieces)
        numbers = counts.new_zeros(layers * (ROWS + 2 * ROUNDS) + (programs << DIGITS[-1]))
        leading, search = (numbers, _SEARCH) if self._leading is None else (self._leading, _SEARCH[1:])
        arguments = (*self._tables, counts, leading, numbers, layers)
        with torch.cuda.device_of(counts):
            for step in search:
                _search_layers[(programs,)](*arguments, step, *self._constants)
            _mark[(programs,)](*arguments, _END, *self._constants)

    def global_counts(self, total: Tensor, floors: Tensor) -> Tensor:
        layers, programs = len(self._scores), len(self._pieces)
        numbers = floors.new_zeros(layers * (2 * ROWS + ROUNDS + 1) + ROWS + 2 + ROUNDS)
        shares = torch.empty_like(floors)
        with torch.cuda.device_of(floors):
            for step in _SEARCH:
                _search_globally[(programs,)](*self._tables, total, floors, numbers, layers, step, *self._constants)
            _share[(1,)](total, shares, numbers, layers, _END, triton.next_power_of_2(layers))
        self._leading = numbers  # its first rows: select() goes on from there
        return shares

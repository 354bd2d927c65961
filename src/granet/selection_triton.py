"""The selection as Triton kernels over a table of layers: no copy of the weights, no host wait, few launches.

The same digit-by-digit search as in ``selection.py``, and the same outcome bit for bit. One launch makes the histograms
of one digit for all layers; whichever program finishes last takes the search one digit further on the spot.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet import layer_table as tables
from granet.selection import fill

WIDTH = 8
"""Bits of a digit. A key has 31, so the upper half of the first digit stays empty."""
ROUNDS = 4
TILE = 16
"""Layers looked at together where all of them share one search."""

_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@triton.jit
def _candidates(table, layer, offsets, AMONG: tl.constexpr, DTYPE: tl.constexpr):
    """Keys and candidacy at ``offsets`` of a layer, and where its mask lies."""
    scores = tl.load(table + 3 * layer).to(tl.pointer_type(DTYPE))
    mask = tl.load(table + 3 * layer + 1).to(tl.pointer_type(tl.uint8))
    inside = offsets < tl.load(table + 3 * layer + 2)
    candidate = inside & (tl.load(mask + offsets, mask=inside, other=1 - AMONG) == AMONG)
    value = tl.load(scores + offsets, mask=candidate, other=0.0).to(tl.float32)
    key = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return tl.minimum(key, 0x7F800001), candidate, mask  # one key for all NaNs


@triton.jit
def _count_digits(
    table, layer, start, prefix, rows, shift, FIRST: tl.constexpr,
    AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Add a piece's histogram of the digit at ``shift`` to its layer's row, and return it."""
    BINS: tl.constexpr = 1 << WIDTH
    total = tl.zeros([BINS], tl.int32)
    for step in range(0, PIECE, BLOCK):
        key, candidate, _ = _candidates(table, layer, start + step + tl.arange(0, BLOCK), AMONG, DTYPE)
        if not FIRST:
            candidate = candidate & (key >> shift + WIDTH == prefix)
        if FIRST or tl.sum(candidate.to(tl.int32), 0) > 0:  # the longer the prefix, the fewer
            total += tl.histogram((key >> shift) & (BINS - 1), BINS, mask=candidate)
    bins = tl.arange(0, BINS)
    tl.atomic_add(rows + layer * BINS + bins, total, mask=total > 0)
    tl.debug_barrier()  # the whole program has added its part before it says so
    return total


@triton.jit
def _search_layers(
    table, pieces, sizes, rows, done, prefixes, above, counts, parts, shift, FIRST: tl.constexpr, LAST: tl.constexpr,
    AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One digit of :meth:`select`: every layer looks for its own ``counts[layer]``-th largest key."""
    BINS: tl.constexpr = 1 << WIDTH
    layer = tl.load(pieces + 2 * tl.program_id(0))
    start = tl.load(pieces + 2 * tl.program_id(0) + 1)
    prefix = tl.load(prefixes + layer)
    part = _count_digits(
        table, layer, start, prefix, rows, shift, FIRST, AMONG, DTYPE, PIECE, BLOCK, WIDTH
    )  # fmt: skip
    bins = tl.arange(0, BINS)
    if LAST:
        tl.store(parts + tl.program_id(0) * BINS + bins, part)
    if tl.atomic_add(done + layer, 1) == tl.load(sizes + layer) - 1:
        row = tl.load(rows + layer * BINS + bins, cache_modifier=".cg").to(tl.int64)
        over = tl.load(above + layer)
        at_least = over + tl.cumsum(row, 0, reverse=True)
        count = tl.load(counts + layer)
        if FIRST:
            count = tl.minimum(count, tl.sum(row, 0))
            tl.store(counts + layer, count)
        digit = tl.sum((at_least >= count).to(tl.int32), 0) - 1
        if FIRST:
            digit = tl.minimum(digit, BINS // 2 - 1)  # a key has no sign bit: where none wins, no key may exceed it
        tl.store(above + layer, over + tl.sum(tl.where(bins > digit, row, 0), 0))
        tl.store(prefixes + layer, (prefix << WIDTH) | digit)


@triton.jit
def _search_globally(
    table, pieces, rows, done, prefixes, above, reached, floors, total, shift, layers,
    FIRST: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
    AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One digit of :meth:`global_counts`: all layers together look for one key."""
    BINS: tl.constexpr = 1 << WIDTH
    layer = tl.load(pieces + 2 * tl.program_id(0))
    start = tl.load(pieces + 2 * tl.program_id(0) + 1)
    prefix = tl.load(prefixes)
    _count_digits(table, layer, start, prefix, rows, shift, FIRST, AMONG, DTYPE, PIECE, BLOCK, WIDTH)
    if tl.atomic_add(done, 1) == tl.num_programs(0) - 1:
        bins = tl.arange(0, BINS)[None, :]
        if FIRST:
            least = tl.load(total) * 0
            most = least
            for tile in range(TILES):
                i = tile * TILE + tl.arange(0, TILE)
                row = tl.load(rows + i[:, None] * BINS + bins, mask=i[:, None] < layers, other=0, cache_modifier=".cg")
                here = tl.sum(row.to(tl.int64), 1)
                floor = tl.minimum(tl.load(floors + i, mask=i < layers, other=0), here)
                tl.store(floors + i, floor, mask=i < layers)
                least += tl.sum(floor, 0)
                most += tl.sum(here, 0)
            tl.store(total, tl.minimum(tl.maximum(tl.load(total), least), most))
            tl.debug_barrier()
        kept = tl.zeros([BINS], tl.int64)
        for tile in range(TILES):
            i = tile * TILE + tl.arange(0, TILE)
            row = tl.load(rows + i[:, None] * BINS + bins, mask=i[:, None] < layers, other=0, cache_modifier=".cg")
            over = tl.load(above + i, mask=i < layers, other=0)
            floor = tl.load(floors + i, mask=i < layers, other=0)
            at_least = over[:, None] + tl.cumsum(row, 1, reverse=True).to(tl.int64)
            kept += tl.sum(tl.maximum(at_least, floor[:, None]), 0)
        digit = tl.sum((kept >= tl.load(total)).to(tl.int32), 0) - 1
        for tile in range(TILES):
            i = tile * TILE + tl.arange(0, TILE)
            row = tl.load(rows + i[:, None] * BINS + bins, mask=i[:, None] < layers, other=0, cache_modifier=".cg")
            over = tl.load(above + i, mask=i < layers, other=0)
            tl.store(above + i, over + tl.sum(tl.where(bins > digit, row, 0), 1), mask=i < layers)
            tl.store(reached + i, over + tl.sum(tl.where(bins >= digit, row, 0), 1), mask=i < layers)
        tl.store(prefixes, (prefix << WIDTH) | digit)


@triton.jit
def _mark(
    table, pieces, first, prefixes, above, counts, parts,
    AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write the outcome: keys above the layer's threshold win, and the first of those equal to it."""
    BINS: tl.constexpr = 1 << WIDTH
    layer = tl.load(pieces + 2 * tl.program_id(0))
    start = tl.load(pieces + 2 * tl.program_id(0) + 1)
    threshold = tl.load(prefixes + layer)
    left = tl.load(counts + layer) - tl.load(above + layer)
    piece = tl.load(first + layer).to(tl.int32)
    while piece < tl.program_id(0):  # ties in earlier pieces of the layer go first
        earlier = piece + tl.arange(0, 128)
        piece += 128
        ties = tl.load(parts + earlier * BINS + (threshold & (BINS - 1)), mask=earlier < tl.program_id(0), other=0)
        left -= tl.sum(ties, 0)
    for step in range(0, PIECE, BLOCK):
        offsets = start + step + tl.arange(0, BLOCK)
        key, candidate, mask = _candidates(table, layer, offsets, AMONG, DTYPE)
        tied = (candidate & (key == threshold)).to(tl.int32)
        wins = (key > threshold) | ((tied > 0) & (tl.cumsum(tied, 0) <= left))
        tl.store(mask + offsets, wins.to(tl.uint8), mask=candidate)
        left -= tl.sum(tied, 0)


class TritonRanking:
    """The candidates of layers on one CUDA device."""

    def __init__(self, scores: Sequence[Tensor], masks: Sequence[Tensor], among: bool) -> None:
        dtypes = {score.dtype for score in scores}
        common = dtypes.pop() if len(dtypes) == 1 else torch.float32
        # Kept alive: the table holds addresses. In logical order, whatever the layout.
        self._scores = [score if score.is_contiguous() else score.contiguous() for score in scores]
        if common is torch.float32:
            self._scores = [score if score.dtype is common else score.to(common) for score in self._scores]
        self._device = scores[0].device
        self._table = tables.layer_table(self._scores, masks)
        self._pieces, self._first, self._sizes = tables.pieces([score.numel() for score in scores], self._device)
        self._constants = {
            "AMONG": int(among),
            "DTYPE": _DTYPES[common],
            "PIECE": tables.PIECE,
            "BLOCK": tables.BLOCK,
            "WIDTH": WIDTH,
        }

    def select(self, counts: Tensor) -> None:
        programs = len(self._pieces)
        rows, done, above, prefixes = self._zeros()
        parts = torch.empty(programs, 1 << WIDTH, dtype=torch.int32, device=self._device)
        counts = counts.clone()
        with torch.cuda.device_of(counts):
            for number in range(ROUNDS):
                _search_layers[(programs,)](
                    self._table, self._pieces, self._sizes, rows[number], done[number], prefixes, above, counts, parts,
                    WIDTH * (ROUNDS - 1 - number), FIRST=number == 0, LAST=number == ROUNDS - 1, **self._constants,
                )  # fmt: skip
            _mark[(programs,)](
                self._table, self._pieces, self._first, prefixes, above, counts, parts, **self._constants
            )

    def global_counts(self, total: Tensor, floors: Tensor) -> Tensor:
        rows, done, above, prefixes = self._zeros()
        total, floors, reached = total.clone(), floors.clone(), torch.empty_like(floors)
        layers = len(self._scores)
        with torch.cuda.device_of(floors):
            for number in range(ROUNDS):
                _search_globally[(len(self._pieces),)](
                    self._table, self._pieces, rows[number], done[number], prefixes, above, reached, floors, total,
                    WIDTH * (ROUNDS - 1 - number), layers, FIRST=number == 0, TILE=TILE, TILES=-(-layers // TILE),
                    **self._constants,
                )  # fmt: skip
        return fill(torch.maximum(above, floors), torch.maximum(reached, floors), total)

    def _zeros(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Histogram rows and counters of finished programs for each round; keys above, and prefixes, of each layer."""
        layers = len(self._scores)
        rows, done, prefixes = ROUNDS * layers << WIDTH, ROUNDS * layers, layers
        small = torch.zeros(rows + done + prefixes, dtype=torch.int32, device=self._device)
        return (
            small[:rows].view(ROUNDS, layers << WIDTH),
            small[rows : rows + done].view(ROUNDS, layers),
            torch.zeros(layers, dtype=torch.int64, device=self._device),
            small[rows + done :],
        )

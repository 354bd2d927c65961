"""The selection's device side as Triton kernels over a table of layers: no copy of the weights, and no host wait.

One launch serves all layers: a program looks up which layer its piece belongs to and where that layer's scores and mask
lie. The keys and the order are those of the plain path in ``selection.py``, so the outcome is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet import layer_table as tables

_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@triton.jit
def _candidates(table, layer, offsets, AMONG: tl.constexpr, DTYPE: tl.constexpr):
    """Keys and candidacy at ``offsets`` of a layer, and where its mask lies."""
    scores = tl.load(table + 3 * layer).to(tl.pointer_type(DTYPE))
    mask = tl.load(table + 3 * layer + 1).to(tl.pointer_type(tl.uint8))
    inside = offsets < tl.load(table + 3 * layer + 2)
    candidate = inside & (tl.load(mask + offsets, mask=inside, other=1 - AMONG) == AMONG)
    value = tl.load(scores + offsets, mask=candidate, other=0.0).to(tl.float32)
    return value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, candidate, mask


@triton.jit
def _histogram(
    table, pieces, prefixes, counts, shift, WIDTH: tl.constexpr, FIRST: tl.constexpr,
    AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    BINS: tl.constexpr = 1 << WIDTH
    layer = tl.load(pieces + 2 * tl.program_id(0))
    start = tl.load(pieces + 2 * tl.program_id(0) + 1)
    prefix = tl.load(prefixes + layer).to(tl.int32)
    bins = tl.arange(0, 2 * BINS)
    total = tl.zeros([2 * BINS], tl.int32)
    for step in range(0, PIECE, BLOCK):
        key, candidate, _ = _candidates(table, layer, start + step + tl.arange(0, BLOCK), AMONG, DTYPE)
        if not FIRST:
            candidate = candidate & ((key >> (shift + WIDTH)) == prefix)
        digit = (key >> shift) & (BINS - 1)
        total += tl.histogram(tl.where(candidate, digit, BINS), 2 * BINS)  # all others fall into one bin beyond
    tl.atomic_add(counts + layer * BINS + bins, total, mask=(bins < BINS) & (total > 0))


@triton.jit
def _count_ties(
    table, pieces, thresholds, ties,
    AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    layer = tl.load(pieces + 2 * tl.program_id(0))
    start = tl.load(pieces + 2 * tl.program_id(0) + 1)
    threshold = tl.load(thresholds + layer).to(tl.int32)
    found = tl.zeros([BLOCK], tl.int32)
    for step in range(0, PIECE, BLOCK):
        key, candidate, _ = _candidates(table, layer, start + step + tl.arange(0, BLOCK), AMONG, DTYPE)
        found += (candidate & (key == threshold)).to(tl.int32)
    tl.store(ties + tl.program_id(0), tl.sum(found, 0).to(tl.int64))


@triton.jit
def _mark(
    table, pieces, thresholds, allowances,
    AMONG: tl.constexpr, DTYPE: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    layer = tl.load(pieces + 2 * tl.program_id(0))
    start = tl.load(pieces + 2 * tl.program_id(0) + 1)
    threshold = tl.load(thresholds + layer).to(tl.int32)
    left = tl.load(allowances + tl.program_id(0))  # ties that may still win, counted from this piece on
    for step in range(0, PIECE, BLOCK):
        offsets = start + step + tl.arange(0, BLOCK)
        key, candidate, mask = _candidates(table, layer, offsets, AMONG, DTYPE)
        tied = (candidate & (key == threshold)).to(tl.int64)
        wins = (key > threshold) | ((tied > 0) & (tl.cumsum(tied, 0) <= left))
        tl.store(mask + offsets, wins.to(tl.uint8), mask=candidate)
        left -= tl.sum(tied, 0)


class TritonRanking:
    """The candidates of layers on one CUDA device."""

    digits = (11, 10, 10)

    def __init__(self, scores: Sequence[Tensor], masks: Sequence[Tensor], among: bool) -> None:
        dtypes = {score.dtype for score in scores}
        common = dtypes.pop() if len(dtypes) == 1 else torch.float32
        self._scores = [score.reshape(-1).to(common) for score in scores]  # kept alive: the table holds addresses
        self._table = tables.layer_table(self._scores, masks)
        self._pieces, self._first_piece = tables.pieces([score.numel() for score in scores], scores[0].device)
        self._constants = {
            "AMONG": int(among),
            "DTYPE": _DTYPES[common],
            "PIECE": tables.PIECE,
            "BLOCK": tables.BLOCK,
        }
        self._first: Tensor | None = None

    def histogram(self, prefix: Tensor, shift: int, width: int) -> Tensor:
        first = shift + width == sum(self.digits)
        if first and self._first is not None:
            return self._first
        counts = torch.zeros(len(self._scores), 1 << width, dtype=torch.int32, device=prefix.device)
        with torch.cuda.device_of(prefix):
            _histogram[self._grid](
                self._table, self._pieces, prefix, counts, shift, WIDTH=width, FIRST=first, **self._constants
            )
        if first:
            self._first = counts
        return counts

    def mark(self, threshold: Tensor, ties: Tensor) -> None:
        found = torch.empty(len(self._pieces), dtype=torch.int64, device=threshold.device)
        layer = self._pieces[:, 0]
        with torch.cuda.device_of(threshold):
            _count_ties[self._grid](self._table, self._pieces, threshold, found, **self._constants)
            before = found.cumsum(0) - found
            allowance = ties[layer] - (before - before[self._first_piece[layer]])
            _mark[self._grid](self._table, self._pieces, threshold, allowance, **self._constants)

    @property
    def _grid(self) -> tuple[int]:
        return (len(self._pieces),)

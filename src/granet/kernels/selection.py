"""The selection as Triton kernels over tables of layers: no copy of the weights, no host wait, few launches.

The same digit-by-digit search as in `granet.selection`, and the same outcome bit for bit. A launch counts one digit for
all layers; in the next launch every program first reads off which digit it is.

Numbers of a layer-wise search, all zero at first: for each layer its rows of bins, one row for each digit (the rows of
the first may lie elsewhere); [rounds, layers] pairs of prefix and winners left; then, as int32, the bins of the last
digit for each piece. Over shards, digits of places follow those of keys instead of these bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet.kernels.digits import KEYS, KEYS_AND_PLACES, count_digit, earliness, keys_at, sum_rows
from granet.kernels.global_search import share_out
from granet.kernels.launch import launch
from granet.kernels.layer_table import tables
from granet.kernels.pieces import address, this_piece
from granet.tensors.part import Part, Reduce, identity
from granet.tensors.row import contiguous, dtypes

_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@triton.jit
def _pair(numbers, layers, layer, round, STEP: tl.constexpr):
    return numbers + layers * STEP.rows + 2 * (layers * round + layer)


@triton.jit
def _parts(numbers, layers, STEP: tl.constexpr):
    return (numbers + layers * (STEP.rows + 2 * STEP.rounds)).to(tl.pointer_type(tl.int32))


@triton.jit
def _narrow(counts, leading, numbers, layers, layer, STEP: tl.constexpr):
    """What the least winner's value begins with, by the digits counted so far; how many win of those that do."""
    BINS: tl.constexpr = 1 << STEP.before
    bins = tl.arange(0, BINS)
    if STEP.round == 1:
        row = tl.load(leading + layer * BINS + bins)
        left = tl.minimum(tl.load(counts + layer), tl.sum(row, 0))
    else:
        row = tl.load(numbers + layers * (STEP.row - BINS) + layer * BINS + bins)
        left = tl.load(_pair(numbers, layers, layer, STEP.round - 1, STEP) + 1)
    prefix = layer * 0
    if (STEP.round != 1) & (STEP.round != STEP.keys + 1):  # not the first digit of a value
        prefix = tl.load(_pair(numbers, layers, layer, STEP.round - 1, STEP))
    digit = tl.sum((tl.cumsum(row, 0, reverse=True) >= left).to(tl.int32), 0) - 1  # none left: above all others
    left -= tl.sum(tl.where(bins > digit, row, 0), 0)
    return (prefix << STEP.before) | digit, left


@triton.jit
def _search_layers(
    tensors, masks, pieces, counts, leading, numbers, layers,
    STEP: tl.constexpr, AMONG: tl.constexpr, DTYPE: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Count one digit: every layer looks for its own ``counts[layer]``-th largest key, then for a place among ties."""
    layer, start, length = this_piece(pieces, CUT)
    scores = address(tensors, layer, start, DTYPE, CUT)
    mask = address(masks, layer, start, tl.uint8, CUT)
    prefix = layer * 0
    threshold = prefix
    if STEP.round > 0:
        prefix, left = _narrow(counts, leading, numbers, layers, layer, STEP)
        if start == 0:  # once for the layer
            pair = _pair(numbers, layers, layer, STEP.round, STEP)
            tl.store(pair, prefix)
            tl.store(pair + 1, left)
    if STEP.round == STEP.keys:
        threshold = prefix
        prefix = layer * 0
    elif STEP.round > STEP.keys:
        threshold = tl.load(_pair(numbers, layers, layer, STEP.keys, STEP))
    row = numbers + layers * STEP.row + (layer << STEP.width)
    part = None
    if STEP.round == STEP.rounds - 1 and STEP.rounds == STEP.keys:
        part = _parts(numbers, layers, STEP) + (tl.program_id(0) << STEP.width)
    count_digit(scores, mask, pieces, start, length, threshold, prefix, row, part, STEP, AMONG, CUT)


@triton.jit
def _mark(
    tensors, masks, pieces, counts, leading, numbers, layers,
    STEP: tl.constexpr, AMONG: tl.constexpr, DTYPE: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Write the outcome: keys above the layer's threshold win, and the first of those equal to it."""
    ALONE: tl.constexpr = STEP.rounds == STEP.keys
    layer, start, length = this_piece(pieces, CUT)
    scores = address(tensors, layer, start, DTYPE, CUT)
    mask = address(masks, layer, start, tl.uint8, CUT)
    last, left = _narrow(counts, leading, numbers, layers, layer, STEP)
    if ALONE:
        BINS: tl.constexpr = 1 << STEP.before
        ties = _parts(numbers, layers, STEP) + (last & (BINS - 1))
        here = tl.program_id(0)
        piece = here - (start // CUT.piece).to(tl.int32)
        while piece < here:  # ties in earlier pieces of the layer go first
            earlier = piece + tl.arange(0, 128)
            left -= tl.sum(tl.load(ties + earlier * BINS, mask=earlier < here, other=0), 0)
            piece += 128
        own = tl.load(ties + here * BINS)
        some_win = (left > 0) & (left < own)  # of the ties in this piece: only then does their order count
        least = (last + (left < own).to(tl.int64)).to(tl.int32)
    else:  # places tell which of all ranks' ties are first
        least = tl.load(_pair(numbers, layers, layer, STEP.keys, STEP)) + 1
        some_win = True
    for step in range(0, CUT.piece, CUT.block):
        offsets = step + tl.arange(0, CUT.block)
        key, candidate = keys_at(scores, mask, offsets, length, AMONG)
        wins = key >= least
        if some_win:
            tied = candidate & (key + 1 == least)
            if ALONE:
                wins = wins | (tied & (tl.cumsum(tied.to(tl.int32), 0) <= left))
                left -= tl.sum(tied.to(tl.int32), 0)
            else:
                wins = wins | (tied & (earliness(pieces, start + offsets, STEP) >= last))
        active = wins & candidate if AMONG else wins | (candidate == 0)
        tl.store(mask + offsets, active.to(tl.uint8), mask=offsets < length)


class TritonRanking:
    """The candidates of layers on one CUDA device; the kernels know them by what the mask holds there, AMONG."""

    def __init__(
        self,
        scores: Sequence[Tensor],
        masks: Sequence[Tensor],
        candidates: Literal["active", "inactive"],
        parts: Sequence[Part] | None = None,
        reduce: Reduce = identity,
    ) -> None:
        common, *others = dtypes(scores)
        if others:
            common = torch.float32
            scores = [score.to(common) for score in scores]
        if not contiguous(scores):  # in logical order, whatever the layout
            scores = [score.contiguous() for score in scores]
        self._scores, self._masks = scores, masks  # kept alive: the tables hold addresses
        self._tables, cut = tables(scores, masks, parts=parts)
        self._constants = int(candidates == "active"), _DTYPES[common], cut
        self._reduce = None if parts is None else reduce
        self._leading: Tensor | None = None

    def select(self, counts: Tensor) -> None:
        layers, programs = len(counts), len(self._tables[-1])
        *steps, end = KEYS if self._reduce is None else KEYS_AND_PLACES
        ties_of_pieces = (programs << end.before) // 2 if self._reduce is None else 0
        numbers = counts.new_zeros(layers * (end.rows + 2 * end.rounds) + ties_of_pieces)
        leading, first = (numbers, 0) if self._leading is None else (self._leading, 1)
        arguments = (*self._tables, counts, leading, numbers)
        with torch.cuda.device_of(counts):
            for step in steps[first:]:
                launch(_search_layers, programs, arguments, layers, step, *self._constants)
                if self._reduce is not None:
                    sum_rows(self._reduce, numbers, layers, step)
            launch(_mark, programs, arguments, layers, end, *self._constants)

    def global_counts(self, total: Tensor, floors: Tensor) -> Tensor:
        shares, self._leading = share_out(self._tables, total, floors, self._constants, self._reduce)
        return shares

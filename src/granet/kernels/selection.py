"""The selection as Triton kernels over tables of layers: no copy of the weights, no host wait, few launches.

The same digit-by-digit search as in `granet.selection`, and the same outcome bit for bit. A launch counts one digit for
all layers; in the next launch every program first reads off which digit it is.

Numbers of a layer-wise search, all zero at first: for each layer its rows of bins, one row for each digit (the rows of
the first may lie elsewhere); [rounds, layers] pairs of prefix and winners left; then, as int32, the bins of the last
digit for each piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet.kernels.digits import END, STEPS, count_digit, keys_at
from granet.kernels.global_search import share_out
from granet.kernels.launch import launch
from granet.kernels.layer_table import tables
from granet.kernels.pieces import address, this_piece
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
    """What the winners' least key begins with, by the digits counted so far; how many win of those that do."""
    BINS: tl.constexpr = 1 << STEP.before
    bins = tl.arange(0, BINS)
    if STEP.round == 1:
        row = tl.load(leading + layer * BINS + bins)
        prefix = layer * 0
        left = tl.minimum(tl.load(counts + layer), tl.sum(row, 0))
    else:
        row = tl.load(numbers + layers * (STEP.row - BINS) + layer * BINS + bins)
        pair = _pair(numbers, layers, layer, STEP.round - 1, STEP)
        prefix = tl.load(pair)
        left = tl.load(pair + 1)
    digit = tl.sum((tl.cumsum(row, 0, reverse=True) >= left).to(tl.int32), 0) - 1  # none left: a key above all others
    left -= tl.sum(tl.where(bins > digit, row, 0), 0)
    return (prefix << STEP.before) | digit, left


@triton.jit
def _search_layers(
    tensors, masks, pieces, counts, leading, numbers, layers,
    STEP: tl.constexpr, AMONG: tl.constexpr, DTYPE: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Count one digit: every layer looks for its own ``counts[layer]``-th largest key."""
    BINS: tl.constexpr = 1 << STEP.width
    layer, start, length = this_piece(pieces, CUT)
    scores = address(tensors, layer, start, DTYPE, CUT)
    mask = address(masks, layer, start, tl.uint8, CUT)
    prefix = layer * 0
    if STEP.round > 0:
        prefix, left = _narrow(counts, leading, numbers, layers, layer, STEP)
        if start == 0:  # once for the layer
            pair = _pair(numbers, layers, layer, STEP.round, STEP)
            tl.store(pair, prefix)
            tl.store(pair + 1, left)
    row = numbers + layers * STEP.row + layer * BINS
    part = _parts(numbers, layers, STEP) + tl.program_id(0) * BINS
    LAST: tl.constexpr = STEP.round == STEP.rounds - 1
    count_digit(scores, mask, length, prefix, row, part, STEP, LAST, AMONG, CUT)


@triton.jit
def _mark(
    tensors, masks, pieces, counts, leading, numbers, layers,
    STEP: tl.constexpr, AMONG: tl.constexpr, DTYPE: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Write the outcome: keys above the layer's threshold win, and the first of those equal to it."""
    BINS: tl.constexpr = 1 << STEP.before
    layer, start, length = this_piece(pieces, CUT)
    scores = address(tensors, layer, start, DTYPE, CUT)
    mask = address(masks, layer, start, tl.uint8, CUT)
    threshold, left = _narrow(counts, leading, numbers, layers, layer, STEP)
    ties = _parts(numbers, layers, STEP) + (threshold & (BINS - 1))
    here = tl.program_id(0)
    piece = here - (start // CUT.piece).to(tl.int32)
    while piece < here:  # ties in earlier pieces of the layer go first
        earlier = piece + tl.arange(0, 128)
        left -= tl.sum(tl.load(ties + earlier * BINS, mask=earlier < here, other=0), 0)
        piece += 128
    own = tl.load(ties + here * BINS)
    some_win = (left > 0) & (left < own)  # of the ties in this piece: only then does their order count
    least = (threshold + (left < own).to(tl.int64)).to(tl.int32)
    for step in range(0, CUT.piece, CUT.block):
        offsets = step + tl.arange(0, CUT.block)
        key, candidate = keys_at(scores, mask, offsets, length, AMONG)
        wins = key >= least
        if some_win:
            tied = (candidate & (key + 1 == least)).to(tl.int32)
            wins = wins | ((tied > 0) & (tl.cumsum(tied, 0) <= left))
            left -= tl.sum(tied, 0)
        active = wins & candidate if AMONG else wins | (candidate == 0)
        tl.store(mask + offsets, active.to(tl.uint8), mask=offsets < length)


class TritonRanking:
    """The candidates of layers on one CUDA device; the kernels know them by what the mask holds there, AMONG."""

    def __init__(
        self, scores: Sequence[Tensor], masks: Sequence[Tensor], candidates: Literal["active", "inactive"]
    ) -> None:
        common, *others = dtypes(scores)
        if others:
            common = torch.float32
            scores = [score.to(common) for score in scores]
        if not contiguous(scores):  # in logical order, whatever the layout
            scores = [score.contiguous() for score in scores]
        self._scores, self._masks = scores, masks  # kept alive: the tables hold addresses
        self._tables, cut = tables(scores, masks)
        self._constants = int(candidates == "active"), _DTYPES[common], cut
        self._leading: Tensor | None = None

    def select(self, counts: Tensor) -> None:
        layers, programs = len(counts), len(self._tables[-1])
        numbers = counts.new_zeros(layers * (END.rows + 2 * END.rounds) + (programs << END.before) // 2)
        leading, steps = (numbers, STEPS) if self._leading is None else (self._leading, STEPS[1:])
        arguments = (*self._tables, counts, leading, numbers)
        with torch.cuda.device_of(counts):
            for step in steps:
                launch(_search_layers, programs, arguments, layers, step, *self._constants)
            launch(_mark, programs, arguments, layers, END, *self._constants)

    def global_counts(self, total: Tensor, floors: Tensor) -> Tensor:
        shares, self._leading = share_out(self._tables, total, floors, self._constants)
        return shares

"""The search of all layers together for one key, as Triton kernels.

Numbers of the search, all zero at first: for each layer its rows of bins, one row for each digit, and as many that hold
how many of its keys are larger; [rounds, layers] finished pieces; [layers] floors within reach. Then, of all layers
together: how many keys are kept if the next digit is this one, for each digit and bin; [rounds] prefixes.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet.kernels.digits import KEYS, count_digit, sum_rows
from granet.kernels.launch import launch
from granet.kernels.pieces import address, pieces_of_layer, this_piece
from granet.tensors.part import Reduce


@triton.jit
def _of_all(numbers, layers, STEP: tl.constexpr):
    """Where the numbers of all layers together begin."""
    return numbers + layers * (2 * STEP.rows + STEP.rounds + 1)


@triton.jit
def _floors(numbers, layers, STEP: tl.constexpr):
    return numbers + layers * (2 * STEP.rows + STEP.rounds)


@triton.jit
def _narrow(total, numbers, layers, STEP: tl.constexpr):
    """What the least key that is kept begins with, by the digits counted so far; how many are kept in all."""
    BINS: tl.constexpr = 1 << STEP.before
    of_all = _of_all(numbers, layers, STEP)
    goal = tl.minimum(tl.load(total), tl.load(of_all))  # the first bin of all: everything is kept
    kept = tl.load(of_all + STEP.row - BINS + tl.arange(0, BINS))
    digit = tl.sum((kept >= goal).to(tl.int32), 0) - 1
    return (tl.load(of_all + STEP.rows + STEP.round - 1) << STEP.before) | digit, goal


@triton.jit
def _add_up(layer, prefix, floors, numbers, layers, STEP: tl.constexpr):
    """For each bin of a layer's row, how many of its keys are kept if that is the next digit: a share of what all keep.

    ``prefix`` is noted for the next digit.
    """
    BINS: tl.constexpr = 1 << STEP.width
    BEFORE: tl.constexpr = 1 << STEP.before
    bins = tl.arange(0, BINS)
    of_all = _of_all(numbers, layers, STEP)
    row = numbers + layers * STEP.row + layer * BINS
    found = tl.load(row + bins, cache_modifier=".cg")
    larger = layer * 0
    if STEP.round > 0:
        larger = tl.load(numbers + layers * (STEP.rows + STEP.row - BEFORE) + layer * BEFORE + (prefix & (BEFORE - 1)))
        tl.store(of_all + STEP.rows + STEP.round, prefix)
    at_least = larger + tl.cumsum(found, 0, reverse=True)
    tl.store(row + layers * STEP.rows + bins, at_least - found)
    if STEP.round == 0:
        floor = tl.minimum(tl.load(floors + layer), tl.sum(found, 0))
        tl.store(_floors(numbers, layers, STEP) + layer, floor)
    else:
        floor = tl.load(_floors(numbers, layers, STEP) + layer)
    tl.atomic_add(of_all + STEP.row + bins, tl.maximum(at_least, floor), sem="relaxed")


@triton.jit
def _search_globally(
    tensors, masks, pieces, total, floors, numbers, layers,
    STEP: tl.constexpr, ALONE: tl.constexpr, AMONG: tl.constexpr, DTYPE: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Count one digit. If all keys are here, whoever finishes last in a layer adds up what of it is kept."""
    layer, start, length = this_piece(pieces, CUT)
    scores = address(tensors, layer, start, DTYPE, CUT)
    mask = address(masks, layer, start, tl.uint8, CUT)
    prefix = layer * 0
    if STEP.round > 0:
        prefix, _ = _narrow(total, numbers, layers, STEP)
    row = numbers + layers * STEP.row + (layer << STEP.width)
    count_digit(scores, mask, pieces, start, length, prefix, prefix, row, None, STEP, AMONG, CUT)
    if ALONE:
        tl.debug_barrier()  # the whole program has added its part before it says so
        finished = numbers + layers * (2 * STEP.rows + STEP.round) + layer
        if tl.atomic_add(finished, 1) == pieces_of_layer(pieces) - 1:
            _add_up(layer, prefix, floors, numbers, layers, STEP)


@triton.jit
def _add_up_sums(total, floors, numbers, layers, STEP: tl.constexpr):
    """What is added up of each layer once its row has been summed over ranks."""
    layer = tl.program_id(0).to(tl.int64)
    prefix = layer * 0
    if STEP.round > 0:
        prefix, _ = _narrow(total, numbers, layers, STEP)
    _add_up(layer, prefix, floors, numbers, layers, STEP)


@triton.jit
def _share(total, shares, numbers, layers, STEP: tl.constexpr, LAYERS: tl.constexpr):
    """The counts, as ``selection.fill`` makes them of what was found: ties go to earlier layers first."""
    BINS: tl.constexpr = 1 << STEP.before
    threshold, goal = _narrow(total, numbers, layers, STEP)
    layer = tl.arange(0, LAYERS)
    there = layer < layers
    ties = numbers + layers * (STEP.row - BINS) + layer * BINS + (threshold & (BINS - 1))
    larger = tl.load(ties + layers * STEP.rows, mask=there, other=0)
    reached = larger + tl.load(ties, mask=there, other=0)
    floor = tl.load(_floors(numbers, layers, STEP) + layer, mask=there, other=0)
    least = tl.maximum(larger, floor)
    spare = tl.maximum(reached, floor) - least
    left = goal - tl.sum(least, 0) - (tl.cumsum(spare, 0) - spare)
    tl.store(shares + layer, least + tl.minimum(tl.maximum(left, 0), spare), mask=there)


def share_out(
    tables: tuple[Tensor, ...],
    total: Tensor,
    floors: Tensor,
    constants: tuple[Hashable, ...],
    reduce: Reduce | None = None,
) -> tuple[Tensor, Tensor]:
    """How many candidates each layer keeps, and the numbers of the search: the rows of the first digit come first.

    ``reduce`` sums over ranks, if they hold parts of the layers.
    """
    layers = len(floors)
    *steps, end = KEYS
    numbers = floors.new_zeros(layers * (2 * end.rows + end.rounds + 1) + end.rows + end.rounds)
    shares = torch.empty_like(floors)
    with torch.cuda.device_of(floors):
        for step in steps:
            arguments = *tables, total, floors, numbers
            launch(_search_globally, len(tables[-1]), arguments, layers, step, reduce is None, *constants)
            if reduce is not None:
                sum_rows(reduce, numbers, layers, step)
                launch(_add_up_sums, layers, (total, floors, numbers), layers, step)
        launch(_share, 1, (total, shares, numbers), layers, end, triton.next_power_of_2(layers))
    return shares, numbers

"""Every method that takes a pattern, update by update against a plain simulation in blocks or in groups."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from granet import GMP, SET, GraNet, Method, RigL, RigLITOP, Static
from quick import slow_but_for

Flat = list[np.ndarray]
SHAPES = [(16, 4, 3, 3), (24, 16, 1, 1), (40, 32), (12, 40)]
NUMEL = sum(map(math.prod, SHAPES))
FAST = {"every": 10, "prune_end": 80}
BLOCKS = {"4x1": (4, 1), "1x4": (1, 4), "2x2": (2, 2), "4x4": (4, 4)}
TIES = pytest.mark.parametrize("coarse", [False, True], ids=["distinct", "ties"])


def places(shape: tuple[int, ...], pattern: str) -> np.ndarray:
    """[units, size]: the flat positions of each block, filter or group of a weight."""
    number = np.arange(math.prod(shape)).reshape(shape)
    if pattern in ("filter", "fan-in"):
        return number.reshape(shape[0], -1)
    if ":" in pattern:  # input channels last, then M after M
        return np.moveaxis(number, 1, -1).reshape(-1, int(pattern.split(":")[1]))
    rows, columns = BLOCKS[pattern]
    matrix = number.reshape(shape[0], -1)
    tiles = [
        matrix[top : top + rows, left : left + columns].ravel()
        for top in range(0, matrix.shape[0], rows)
        for left in range(0, matrix.shape[1], columns)
    ]
    return np.array(tiles)


def pooled(values: Flat, pattern: str) -> Flat:
    """The mean size of each unit, as float32."""
    return [
        np.abs(value)[places(shape, pattern)].mean(1).astype(np.float32).astype(float)
        for value, shape in zip(values, SHAPES, strict=True)
    ]


def active_units(masks: Flat, pattern: str) -> Flat:
    units = []
    for mask, shape in zip(masks, SHAPES, strict=True):
        entries = mask[places(shape, pattern)]
        assert (entries == entries[:, :1]).all()  # all or nothing
        units.append(entries[:, 0])
    return units


def per_group(masks: Flat, pattern: str) -> list[int]:
    """The number of active weights that all groups of a layer have."""
    numbers = []
    for mask, shape in zip(masks, SHAPES, strict=True):
        sums = mask[places(shape, pattern)].sum(1)
        assert (sums == sums[0]).all()
        numbers.append(int(sums[0]))
    return numbers


def best(values: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-np.abs(values), kind="stable")[:count]


def thin_groups(weights: Flat, masks: Flat, pattern: str, keep: list[int]) -> Flat:
    result = []
    for weight, mask, shape, count in zip(weights, masks, SHAPES, keep, strict=True):
        new = np.zeros_like(mask)
        for group in places(shape, pattern):
            inside = group[mask[group]]
            new[inside[best(weight[inside], count)]] = True
        result.append(new)
    return result


def regenerate_groups(
    plain, weights: Flat, scores: Flat, masks: Flat, pattern: str, ratio: float, rounding: Callable = math.ceil
) -> Flat:
    """Drop the smallest of the layer, wherever they are; let each group grow back to its number."""
    result = []
    for weight, score, mask, shape in zip(weights, scores, masks, SHAPES, strict=True):
        new = plain.prune_layer(weight, mask, mask.sum() - rounding(ratio * mask.sum()))
        for group in places(shape, pattern):
            outside = group[~new[group]]
            new[outside[best(score[outside], mask[group].sum() - new[group].sum())]] = True
        result.append(new)
    return result


# Blocks.


@pytest.mark.parametrize("pattern", slow_but_for(["2x2"], BLOCKS))
@TIES
def test_granet_in_blocks(trial, plain, equal, pattern: str, coarse: bool) -> None:
    size = math.prod(BLOCKS[pattern])
    method = GraNet(sparsity=0.8, initial_sparsity=0.3, pattern=pattern, **FAST)
    run = trial(method, 125, SHAPES, coarse=coarse)
    for clock, weights, gradients, before, after in run:
        keep = math.ceil((NUMEL - round(NUMEL * method.target(clock))) / size - 0.5)  # the nearest, of two the smaller
        weights, gradients = pooled(weights, pattern), pooled(gradients, pattern)
        pruned = plain.prune_globally(weights, active_units(before, pattern), keep)
        expected = plain.regenerate(weights, gradients, pruned, method.regrow_ratio(clock))
        assert equal(active_units(after, pattern), expected)
    assert sum(run.active) == size * round(NUMEL * 0.2 / size)


@pytest.mark.parametrize("pattern", ["4x1", "4x4"])
def test_gmp_in_blocks_by_the_uniform_scope(trial, plain, equal, pattern: str) -> None:
    size = math.prod(BLOCKS[pattern])
    run = trial(GMP(sparsity=0.75, distribution="uniform", pattern=pattern, **FAST), 125, SHAPES)
    for _, weights, _, before, after in run:
        units = active_units(after, pattern)
        expected = [
            plain.prune_layer(weight, mask, new.sum())
            for weight, mask, new in zip(pooled(weights, pattern), active_units(before, pattern), units, strict=True)
        ]
        assert equal(units, expected)
    assert all(abs(a - 0.25 * math.prod(s)) < size for a, s in zip(run.active, SHAPES, strict=True))
    assert abs(sum(run.active) - 0.25 * NUMEL) <= size / 2


@pytest.mark.parametrize("pattern", ["1x4", "filter"])
def test_rigl_moves_whole_units(trial, plain, equal, pattern: str) -> None:
    method = RigL(sparsity=0.6, pattern=pattern, every=10, regrow=0.5)
    moved = 0
    for clock, weights, gradients, before, after in trial(method, 125, SHAPES):
        units = active_units(before, pattern)
        ratio = method.regrow_ratio(clock)
        expected = plain.regenerate(pooled(weights, pattern), pooled(gradients, pattern), units, ratio, math.floor)
        assert equal(active_units(after, pattern), expected)
        moved += not equal(units, expected)
    assert moved > 2


# Filters.


@TIES
def test_gmp_keeps_the_filters_of_the_largest_mean_weight(trial, equal, coarse: bool) -> None:
    """Filters of all layers in one line; cut where what is kept is nearest to what is asked."""
    method = GMP(sparsity=0.6, pattern="filter", **FAST)
    run = trial(method, 125, SHAPES, coarse=coarse)
    owner = np.repeat(range(4), [shape[0] for shape in SHAPES])
    sizes = np.array([math.prod(shape[1:]) for shape in SHAPES])[owner]
    for clock, weights, _, before, after in run:
        means = np.concatenate(pooled(weights, "filter"))
        alive = np.concatenate(active_units(before, "filter"))
        line = [i for i in np.argsort(-means, kind="stable") if alive[i]]
        sums = np.concatenate([[0], np.cumsum(sizes[line])])
        cut = np.argmin(np.abs(sums - (NUMEL - round(NUMEL * method.target(clock)))))
        expected = np.zeros(len(means), bool)
        expected[line[:cut]] = True
        assert np.array_equal(np.concatenate(active_units(after, "filter")), expected)
    assert abs(sum(run.active) - 0.4 * NUMEL) <= max(sizes) / 2


def test_every_layer_keeps_a_filter(trial) -> None:
    run = trial(GMP(sparsity=0.8, pattern="filter", **FAST), 125, SHAPES, scales=[1, 1, 1, 1e-6])
    for _ in run:
        assert min(run.active) > 0
    assert run.active[3] == 40


# N:M.


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    slow_but_for([("2:4", {4, 3, 2})], [("2:4", {4, 3, 2}), ("1:4", {4, 3, 2, 1}), ("3:8", {8, 7, 6, 5, 4, 3})]),
)
@TIES
def test_granet_goes_down_to_n_of_m(trial, plain, equal, pattern: str, numbers: set[int], coarse: bool) -> None:
    n, m = map(int, pattern.split(":"))
    shapes = SHAPES if m == 4 else [(16, 8, 3, 3), *SHAPES[1:]]
    method = GraNet(sparsity=1 - n / m, pattern=pattern, every=5, prune_end=80)
    run = trial(method, 125, shapes, coarse=coarse)
    seen = set(per_group_of(run.masks, shapes, pattern))
    for clock, weights, gradients, before, after in run:
        each = max(n, m - round(m * method.target(clock)))
        assert per_group_of(after, shapes, pattern) == [each] * 4
        seen.add(each)
        if shapes is SHAPES:
            pruned = thin_groups(weights, before, pattern, [each] * 4)
            ratio = method.regrow_ratio(clock)
            assert equal(after, regenerate_groups(plain, weights, gradients, pruned, pattern, ratio))
    assert seen <= numbers
    assert {n, n + 1} <= seen
    assert run.zeros == run.net.numel * (m - n) // m


def per_group_of(masks: Flat, shapes: list[tuple[int, ...]], pattern: str) -> list[int]:
    found = [mask[places(shape, pattern)].sum(1) for mask, shape in zip(masks, shapes, strict=True)]
    assert all((sums == sums[0]).all() for sums in found)
    return [int(sums[0]) for sums in found]


def test_rigl_in_n_of_m_stays_there(trial, plain, equal) -> None:
    method = RigL(sparsity=0.5, pattern="2:4", every=10)
    for clock, weights, gradients, before, after in trial(method, 125, SHAPES):
        expected = regenerate_groups(plain, weights, gradients, before, "2:4", method.regrow_ratio(clock), math.floor)
        assert equal(after, expected)
        assert equal(after, before) == (clock.step == 90)  # where the ratio is less than a weight
        assert per_group(after, "2:4") == [2] * 4


def test_the_regrow_ratio_is_met_to_a_weight_though_groups_are_small(trial) -> None:
    """It is the layer that drops, so a ratio below one weight of each group is no obstacle."""
    method = RigLITOP(sparsity=0.5, pattern="2:4", every=10, regrow=0.01, regrow_end=0.01)
    run = trial(method, 125, SHAPES)
    for _, _, _, before, after in run:
        lost = [(b & ~a).sum() for b, a in zip(before, after, strict=True)]
        assert all(loss <= math.ceil(0.01 * count) for loss, count in zip(lost, run.active, strict=True))
        assert int(run.net.regrown) == sum(math.ceil(0.01 * count) for count in run.active)


# Constant fan-in.


def rounded(free: list[int], rows: list[int], total: int) -> list[int]:
    """Each count to whole rows, up where the remainder is largest, so that the sum comes nearest to the total."""
    down = [count // row * row for count, row in zip(free, rows, strict=True)]
    order = sorted(range(len(rows)), key=lambda i: -((free[i] - down[i]) / rows[i]))
    order = [i for i in order if free[i] > down[i]]
    options = [[d + rows[i] * (i in order[:cut]) for i, d in enumerate(down)] for cut in range(len(order) + 1)]
    return min(options, key=lambda option: abs(sum(option) - total))


@TIES
def test_granet_with_constant_fan_in(trial, plain, equal, coarse: bool) -> None:
    method = GraNet(sparsity=0.8, initial_sparsity=0.4, pattern="fan-in", **FAST)
    run = trial(method, 125, SHAPES, coarse=coarse)
    rows = [shape[0] for shape in SHAPES]
    for clock, weights, gradients, before, after in run:
        keep = NUMEL - round(NUMEL * method.target(clock))
        free = [int(mask.sum()) for mask in plain.prune_globally(weights, before, keep)]
        fan_in = [count // row for count, row in zip(rounded(free, rows, keep), rows, strict=True)]
        assert per_group(after, "fan-in") == fan_in
        pruned = thin_groups(weights, before, "fan-in", fan_in)
        expected = regenerate_groups(plain, weights, gradients, pruned, "fan-in", method.regrow_ratio(clock))
        assert equal(after, expected)
    assert abs(sum(run.active) - 0.2 * NUMEL) <= max(rows) / 2


def test_srigl_is_rigl_with_constant_fan_in(trial, plain, equal) -> None:
    method = RigL(sparsity=0.9, pattern="fan-in", every=10)
    run = trial(method, 125, SHAPES)
    fan_in = per_group(run.masks, "fan-in")
    assert min(fan_in) >= 1
    for clock, weights, gradients, before, after in run:
        expected = regenerate_groups(
            plain, weights, gradients, before, "fan-in", method.regrow_ratio(clock), math.floor
        )
        assert equal(after, expected)
        assert per_group(after, "fan-in") == fan_in


# What holds for all.

ALL = [("4x1", 0.75), ("4x4", 0.7), ("filter", 0.5), ("2:4", 0.5), ("1:4", 0.75), ("fan-in", 0.85)]


@pytest.mark.parametrize(("pattern", "sparsity"), ALL)
@pytest.mark.parametrize("kind", [Static, SET])
def test_random_masks_keep_to_the_pattern_and_differ_from_seed_to_seed(trial, equal, pattern, sparsity, kind) -> None:
    method: Method = kind(sparsity=sparsity, pattern=pattern, **({"every": 10} if kind is SET else {}))
    first, again, other = (trial(method, 50, SHAPES, seed=seed) for seed in (0, 0, 1))
    assert equal(first.masks, again.masks)
    assert not equal(first.masks, other.masks)
    count = active_units if pattern in BLOCKS or pattern == "filter" else per_group
    active = first.active
    quantum = max(math.prod(shape[1:]) for shape in SHAPES) if pattern == "filter" else 40
    assert abs(first.zeros - sparsity * NUMEL) <= quantum / 2
    for _, _, _, before, after in first:
        count(after, pattern)
        assert first.active == active
        assert equal(after, before) == (kind is Static)


@pytest.mark.parametrize(("pattern", "sparsity"), ALL)
def test_a_skipped_update_changes_nothing(trial, equal, pattern: str, sparsity: float) -> None:
    run = trial(GraNet(sparsity=sparsity, initial_sparsity=0.3, pattern=pattern, **FAST), 125, SHAPES)
    before, active = run.masks, run.active
    run._move()
    for layer in run.net.layers:
        layer.gradient.view(-1)[::2] = math.nan
    run.net.open(10, run.net.layers, torch.tensor(False))
    run.net.prune_to(sparsity, run.method.prune_score)
    run.net.regenerate(0.5, drop=run.method.prune_score, grow=lambda layer, draw: layer.gradient)
    run.net.commit().write_masks()
    assert equal(run.masks, before)
    assert run.active == active == run.net.active.tolist()
    assert (int(run.net.pruned), int(run.net.regrown)) == (0, 0)

"""Patterns as text, as divisions of a layer, and as numbers of weights."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import granet
from granet.distributions import counts
from granet.patterns import FILTERS, Blocks, Groups, check_fit, parse_pattern
from granet.weights import SparseLayer, find_layers
from refusals import refused


def layer_of(module: nn.Module) -> SparseLayer:
    return find_layers(module)[0]


def blocks_of(weight: Tensor, rows: int, columns: int) -> list[list[tuple[int, ...]]]:
    """The positions of each block in a weight [out, in, ...], block row by block row."""
    matrix = np.arange(weight.numel()).reshape(len(weight), -1)
    high, wide = matrix.shape
    found = []
    for top, left in itertools.product(range(0, high, rows), range(0, wide, columns)):
        flat = matrix[top : top + rows, left : left + columns].ravel()
        found.append([tuple(int(i) for i in np.unravel_index(place, weight.shape)) for place in flat])
    return found


# Text.


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("weight", None),
        ("4x1", Blocks("4x1", 4, 1)),
        ("16x16", Blocks("16x16", 16, 16)),
        ("filter", Blocks("filter", 1, None)),
        ("2:4", Groups("2:4", 4, 2)),
        ("1:16", Groups("1:16", 16, 1)),
        ("fan-in", Groups("fan-in", None, None)),
    ],
)
def test_a_pattern_is_read_from_text(text: str, pattern: object) -> None:
    assert parse_pattern(text) == pattern


def test_the_sparsity_of_n_of_m_may_be_a_rounded_number() -> None:
    assert granet.RigL(sparsity=0.666667, pattern="1:3").pattern == "1:3"


def test_a_method_of_single_weights_refuses_patterns() -> None:
    class Mine(granet.Method):
        def begin(self, net: object) -> None:
            pass

    assert Mine(sparsity=0.5).pattern == "weight"
    with refused("pattern", "4x1"):
        Mine(sparsity=0.5, pattern="4x1")


# Layers that a pattern does not divide.


@pytest.mark.parametrize(
    ("pattern", "sparsity", "name", "why", "all_names"),
    [
        ("2:4", 0.5, "0.weight", "3 inputs are no multiple of 4", "('0.weight',)"),
        ("4x1", 0.5, "1.weight", "10 rows (outputs) are no multiple of 4", "('1.weight', '2.weight')"),
        ("1x8", 0.5, "0.weight", "27 columns (inputs x kernel) are no multiple of 8", "('0.weight', '2.weight')"),
    ],
)
def test_a_layer_that_is_not_divided_is_named_with_the_way_out(pattern, sparsity, name, why, all_names) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 10, 1), nn.Conv2d(8, 6, 3, groups=2), nn.Conv2d(8, 8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.Static(sparsity=sparsity, pattern=pattern)
    with refused("pattern", pattern, f"'{name}'", why, f"exclude={all_names}", unchanged=(model, optimizer)):
        granet.sparsify(model, optimizer, method)
    granet.sparsify(model, optimizer, method, exclude=eval(all_names))  # the advice works


@pytest.mark.parametrize("pattern", ["filter", "fan-in"])
def test_filters_and_fan_in_divide_every_layer(pattern: str) -> None:
    check_fit(parse_pattern(pattern), find_layers(nn.Sequential(nn.Conv1d(3, 5, 7), nn.Linear(11, 13))))


@pytest.mark.filterwarnings("ignore:granet. pattern='filter'. a dropped row")
def test_floors_that_leave_more_than_the_sparsity_are_refused() -> None:
    model = nn.Sequential(nn.Linear(20, 4), nn.Linear(4, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused("sparsity", 0.8, "21", "pattern='filter'", "24", "2"):
        granet.sparsify(model, optimizer, granet.GMP(sparsity=0.8, every=1, pattern="filter"), total_steps=10)


def test_floors_may_be_all_that_the_sparsity_leaves() -> None:
    model = nn.Sequential(nn.Linear(20, 4), nn.Linear(4, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.MagnitudeInit(sparsity=0.98))
    assert list(sparsifier.active.values()) == [1, 1]


def test_a_floor_above_what_n_m_leaves_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Linear(4, 100))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.Static(sparsity=0.5, pattern="2:4")
    with refused("floor", 5, "4", "'2:4'", "'0.weight'"):
        granet.sparsify(model, optimizer, method, floor=5)
    sparsifier = granet.sparsify(model, optimizer, method, floor=4)
    assert [layer.active for layer in sparsifier.layers.values()] == [4, 200]


def test_no_layer_starts_below_the_floor() -> None:
    model = nn.Sequential(nn.Linear(20, 40), nn.Linear(40, 4))
    method = granet.Static(sparsity=0.9, pattern="1x4", distribution="uniform")
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), method, floor=30)
    assert [layer.active for layer in sparsifier.layers.values()] == [64, 32]


# Blocks.

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([(), (1,), (3,), (2, 3)]))


@given(SHAPES, st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_blocks_are_the_rectangles_of_the_matrix(shape, rows: int, columns: int, seed: int) -> None:
    (high, wide, kernel), generator = shape, torch.Generator().manual_seed(seed)
    weight = torch.randn(high * rows, wide * columns, *kernel, generator=generator)
    layer = SparseLayer.of("w", nn.Parameter(weight), 0, 0)
    pattern = Blocks("", rows, columns)
    assert pattern.misfit(layer) is None
    blocks = blocks_of(weight, rows, columns)
    means = [sum(abs(float(weight[place])) for place in block) / len(block) for block in blocks]
    assert pattern.pool(layer, weight).tolist() == pytest.approx(means, rel=1e-6)
    assert pattern.quantum(layer) == rows * columns

    units = torch.rand(len(blocks), generator=generator) < 0.5
    mask = pattern.spread(layer, units)
    assert mask.shape == weight.shape
    for block, active in zip(blocks, units.tolist(), strict=True):
        assert all(bool(mask[place]) == active for place in block)
    assert pattern.units(layer, mask).tolist() == units.tolist()
    assert pattern.holds(layer, mask)
    if rows * columns > 1:
        mask[blocks[0][0]] ^= True
        assert not pattern.holds(layer, mask)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_score_of_a_block_shows_what_is_not_finite(value: float) -> None:
    layer = SparseLayer.of("w", nn.Parameter(torch.ones(4, 4)), 0, 0)
    score = torch.ones(4, 4)
    score[2, 1] = value
    pooled = Blocks("", 2, 2).pool(layer, score)
    assert torch.equal(pooled, torch.tensor([1, 1, value, 1.0])) or (
        math.isnan(value) and pooled.isnan().tolist() == [0, 0, 1, 0]
    )


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(5, 6),
        nn.Conv2d(4, 6, 3),
        nn.Conv2d(4, 6, 3, groups=2),
        nn.ConvTranspose2d(4, 6, 3),
        nn.ConvTranspose2d(4, 6, 3, groups=2),
        nn.ConvTranspose1d(6, 6, 2, groups=3),
    ],
    ids=lambda module: f"{type(module).__name__}-{getattr(module, 'groups', 1)}",
)
def test_a_filter_is_all_that_an_output_channel_is_made_of(module: nn.Module) -> None:
    layer = layer_of(module)
    x = (
        torch.randn(2, 5)
        if isinstance(module, nn.Linear)
        else torch.randn(2, module.in_channels, *[7] * (layer.weight.ndim - 2))
    )
    module.bias.data.zero_()
    units = torch.tensor([True, False, True, True, False, True])
    layer.weight.data.mul_(parse_pattern("filter").spread(layer, units))
    silent = module(x).transpose(0, 1).flatten(1).abs().amax(1) == 0
    assert silent.tolist() == (~units).tolist()


# Groups.


@given(st.integers(1, 4), st.integers(1, 3), st.integers(2, 4), st.sampled_from([(), (3,), (2, 3)]), st.integers(0, 99))
def test_n_of_m_groups_are_neighbouring_input_channels(outputs: int, groups: int, m: int, kernel, seed: int) -> None:
    weight = torch.randn(outputs, groups * m, *kernel, generator=torch.Generator().manual_seed(seed))
    layer = SparseLayer.of("w", nn.Parameter(weight), 0, 0)
    pattern = Groups("", m, 1)
    rows = pattern.split(layer, weight)
    expected = [
        weight[(o, slice(g * m, g * m + m), *place)].tolist()
        for o in range(outputs)
        for place in itertools.product(*map(range, kernel))
        for g in range(groups)
    ]
    assert rows.tolist() == expected
    assert pattern.quantum(layer) == len(expected)
    assert torch.equal(pattern.join(layer, rows), weight)


@pytest.mark.parametrize("pattern", ["1:2", "fan-in"])
@pytest.mark.parametrize("groups", [1, 2])
def test_groups_of_a_transposed_convolution_belong_to_one_output(pattern: str, groups: int) -> None:
    """Only one output channel moves when a group's weights do."""
    module = nn.ConvTranspose2d(4, 6, 2, groups=groups)
    layer, parsed = layer_of(module), parse_pattern(pattern)
    x = torch.randn(1, 4, 3, 3)
    size = parsed.size or 4 // groups * 4
    rows = parsed.split(layer, layer.weight.detach())
    assert rows.shape == (layer.numel // size, size)
    still = module(x)
    for row in range(len(rows)):
        changed = rows.clone()
        changed[row] += 1
        module.weight.data = parsed.join(layer, changed)
        moved = (module(x) - still).abs().amax((0, 2, 3)) > 1e-4
        assert moved.sum() == 1
        assert int(moved.nonzero()) == row // (len(rows) // 6)


def test_a_mask_holds_n_of_m_if_every_group_has_as_many() -> None:
    layer = SparseLayer.of("w", nn.Parameter(torch.randn(2, 8)), 0, 0)
    mask = torch.tensor([[1, 0, 1, 0, 0, 0, 1, 1], [0, 1, 1, 0, 1, 1, 0, 0]], dtype=torch.bool)
    assert parse_pattern("2:4").holds(layer, mask)
    assert parse_pattern("fan-in").holds(layer, mask)
    swapped = mask.clone()
    swapped[0] = torch.tensor([1, 1, 1, 0, 0, 0, 0, 1], dtype=torch.bool)
    assert not parse_pattern("2:4").holds(layer, swapped)
    assert parse_pattern("fan-in").holds(layer, swapped)
    swapped[0, 0] = False
    assert not parse_pattern("fan-in").holds(layer, swapped)


# Numbers.

LAYERS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12), st.floats(0, 1)), min_size=1, max_size=6)


@given(LAYERS, st.floats(0, 1), st.integers(0, 3))
def test_counts_in_quanta_are_as_near_as_a_single_quantum_brings_them(layers, share: float, floor: int) -> None:
    quanta, densities = [q for q, _, _ in layers], [d for _, _, d in layers]
    sizes = [q * number for q, number, _ in layers]
    floors = [math.ceil(min(floor, size) / q) * q for size, q in zip(sizes, quanta, strict=True)]
    total = sum(floors) + round(share * (sum(sizes) - sum(floors)))
    result = counts([(size,) for size in sizes], densities, total, floor, quanta)
    for count, size, quantum, low in zip(result, sizes, quanta, floors, strict=True):
        assert count % quantum == 0
        assert low <= count <= size
    away = total - sum(result)
    for count, size, quantum, low in zip(result, sizes, quanta, floors, strict=True):
        if away > 0 and count + quantum <= size:
            assert abs(away - quantum) >= away
        if away < 0 and count - quantum >= low:
            assert abs(away + quantum) >= -away


def test_counts_in_quanta_by_hand() -> None:
    # exact quanta 4.6, 2.5, 7.3: down to 4, 2, 7 = 4*5 + 2*4 + 7*2 = 42; the total 47 is 5 away
    # first the remainder 0.6 gets a quantum of 5, then nothing is nearer
    assert counts([(50,), (40,), (20,)], [0.46, 0.25, 0.73], total=47, quanta=[5, 4, 2]) == [25, 8, 14]
    assert counts([(50,), (40,), (20,)], [0.46, 0.25, 0.73], total=51, quanta=[5, 4, 2]) == [25, 12, 14]


def test_the_largest_remainder_is_the_largest_share_of_a_quantum() -> None:
    """3.4 quanta of 8 and 2.75 of 2: the second layer gets one more, and, as the first would overshoot, another."""
    assert counts([(40,), (22,)], [27.5 / 40, 5.5 / 22], total=33, quanta=[8, 2]) == [24, 8]
    assert counts([(20,), (20,)], [0.59, 0.51], total=22, quanta=[2, 4]) == [14, 8]  # as far over as it was under


def test_quanta_for_a_floor_are_not_taken_from_a_dense_layer() -> None:
    assert counts([(16,), (40,), (40,)], [1.0, 0.05, 0.75], total=48, floor=8, quanta=[4, 4, 4]) == [16, 8, 24]
    assert counts([(8,), (8,)], [1.0, 0.0], total=8, floor=4, quanta=[4, 4]) == [4, 4]  # but for want of others


def test_a_block_of_many_weights_loses_none_of_them_to_rounding() -> None:
    layer = SparseLayer.of("w", nn.Parameter(torch.zeros(2, 1001)), 0, 0)
    scores = torch.zeros(2, 1001)
    scores[0, 0] = 2**24 + 996
    scores[1, 0], scores[1, 1:] = 2**24, 1  # 2**24 + 1 is no float32
    first, second = FILTERS.pool(layer, scores).tolist()
    assert first < second

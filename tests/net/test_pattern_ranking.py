"""Selection under a pattern, against sorting by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from granet.net.pattern_ranking import BlockRanking, GroupRanking, best_of_rows
from granet.patterns import Groups
from granet.weights import SparseLayer

VALUES = st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0, -2.0, 3.0, math.inf, -math.inf, math.nan])


def order(values: list[float]) -> list[int]:
    """Places from the best on: by absolute value, NaN first of all, equal ones by place."""
    size = [math.inf if math.isnan(value) else abs(value) for value in values]
    return sorted(range(len(values)), key=lambda i: (not math.isnan(values[i]), -size[i], i))


# Rows.


@given(st.data(), st.integers(1, 4), st.integers(1, 6), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_each_row_keeps_its_best_candidates(data, rows: int, columns: int, dtype: torch.dtype) -> None:
    scores = data.draw(st.lists(st.lists(VALUES, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    candidates = torch.tensor(
        data.draw(st.lists(st.lists(st.booleans(), min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    )
    wanted = torch.tensor(data.draw(st.lists(st.integers(0, columns), min_size=rows, max_size=rows)))
    chosen = best_of_rows(torch.tensor(scores, dtype=dtype), candidates, wanted)
    for row in range(rows):
        places = [i for i in order(scores[row]) if candidates[row, i]][: wanted[row]]
        assert sorted(chosen[row].nonzero().flatten().tolist()) == sorted(places)


def test_thinning_and_filling_leave_groups_alike() -> None:
    layer = SparseLayer.of("w", nn.Parameter(torch.zeros(2, 8)), 0, 0)
    score = torch.tensor([[1.0, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1]])
    mask = torch.ones(16, dtype=torch.bool)
    GroupRanking(Groups("", 4, 2), [layer], [score], [mask], "active").select(torch.tensor([8]))
    assert mask.view(2, 8).int().tolist() == [[0, 0, 1, 1, 0, 0, 1, 1], [1, 1, 0, 0, 1, 1, 0, 0]]
    mask.view(2, 8)[0, 2:4] = False  # two gone from the first group, one from the last
    mask.view(2, 8)[1, 4] = False
    GroupRanking(Groups("", 4, 2), [layer], [score], [mask], "inactive").select(torch.tensor([3]))
    assert mask.view(2, 8).int().tolist() == [[0, 0, 1, 1, 0, 0, 1, 1], [1, 1, 0, 0, 1, 1, 0, 0]]


# Budgets.


@pytest.mark.parametrize(
    ("total", "blocks"), [(0, 0), (4, 0), (5, 1), (13, 1), (14, 2), (22, 2), (23, 3), (36, 4), (99, 4)]
)
def test_blocks_of_nine_come_nearest_to_a_total(total: int, blocks: int) -> None:
    scores, masks = [torch.tensor([4.0, 1.0]), torch.tensor([2.0, 3.0])], [torch.ones(2, dtype=torch.bool)] * 2
    found = BlockRanking(scores, masks, [9, 9], "active").global_counts(torch.tensor(total), torch.tensor([0, 0]))
    assert int(found.sum()) == 9 * blocks


@pytest.mark.parametrize("sizes", [[4, 4], [4, 6]])
def test_between_two_numbers_of_blocks_the_fewer_stay(sizes: list[int]) -> None:
    scores, masks = [torch.tensor([4.0, 3.0]), torch.tensor([0.0])], [torch.ones(n, dtype=torch.bool) for n in (2, 1)]
    ranking = BlockRanking(scores, masks, sizes, "active")
    assert ranking.global_counts(torch.tensor(6), torch.tensor([0, 0])).tolist() == [4, 0]


def flat_layers(draw, sizes: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    scores = [torch.tensor(draw(st.lists(VALUES, min_size=n, max_size=n))) for n in sizes]
    masks = [torch.tensor(draw(st.lists(st.booleans(), min_size=n, max_size=n))) for n in sizes]
    return scores, masks


@given(
    st.data(),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), min_size=1, max_size=4),
    st.sampled_from([0, 1, 6]),
)
def test_the_best_blocks_of_all_layers_come_nearest_to_the_total(data, shapes, floor: int) -> None:
    """One line of blocks, those for the floors first; cut where the weights before it are nearest the total."""
    numbers, sizes = [n for n, _ in shapes], [size for _, size in shapes]
    scores, masks = flat_layers(data.draw, numbers)
    total = data.draw(st.integers(0, sum(n * size for n, size in shapes)))
    floors = torch.tensor([math.ceil(floor / size) * size for size in sizes])
    counts = BlockRanking(scores, masks, sizes, "active").global_counts(torch.tensor(total), floors)

    places = [(layer, i) for layer, n in enumerate(numbers) for i in range(n)]
    line = [places[i] for i in order([float(scores[layer][j]) for layer, j in places])]
    line = [(layer, i) for layer, i in line if masks[layer][i]]
    asked = [
        place
        for layer, size in enumerate(sizes)
        for place in [p for p in line if p[0] == layer][: math.ceil(floor / size)]
    ]
    line = [p for p in line if p in asked] + [p for p in line if p not in asked]
    cuts = range(len(asked), len(line) + 1)
    weights = {cut: sum(sizes[layer] for layer, _ in line[:cut]) for cut in cuts}
    nearest = min(abs(weight - total) for weight in weights.values())
    assert abs(int(counts.sum()) - total) == nearest
    assert [int(c) for c in counts] in [
        [size * sum(layer == i for layer, _ in line[:cut]) for i, size in enumerate(sizes)]
        for cut in cuts
        if abs(weights[cut] - total) == nearest
    ]


@pytest.mark.parametrize("total", [0, 1, 5, 6, 7, 8, 100])
def test_no_block_at_all_where_nothing_is_asked(total: int) -> None:
    """A first block of 12 weights is nearer to 7 than nothing is, but not nearer to 5."""
    scores = [torch.tensor([3.0]), torch.tensor([2.0, 1.0])]
    masks = [torch.ones(1, dtype=torch.bool), torch.ones(2, dtype=torch.bool)]
    counts = BlockRanking(scores, masks, [12, 3], "active").global_counts(torch.tensor(total), torch.tensor([0, 0]))
    assert counts.tolist() == ([0, 0] if total <= 6 else [12, 0] if total <= 13 else [12, 6])


@given(st.data(), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=4), st.integers(0, 2))
def test_a_budget_for_constant_fan_in_is_rounded_by_largest_remainder(data, shapes, floor: int) -> None:
    """Each layer's free count is rounded to whole rows of weights; those rounded up have the largest remainders."""
    layers = [SparseLayer.of(str(i), nn.Parameter(torch.zeros(shape)), i, 0) for i, shape in enumerate(shapes)]
    scores = [
        torch.tensor(data.draw(st.lists(VALUES, min_size=n.numel, max_size=n.numel))).view(n.weight.shape)
        for n in layers
    ]
    masks = [torch.ones(layer.numel, dtype=torch.bool) for layer in layers]
    total = data.draw(st.integers(0, sum(layer.numel for layer in layers)))
    floors = torch.tensor([math.ceil(floor / r) * r for r, _ in shapes])
    ranking = GroupRanking(Groups("", None, None), layers, scores, masks, "active")
    counts = ranking.global_counts(torch.tensor(total), floors).tolist()

    rows = [shape[0] for shape in shapes]
    free = free_counts(scores, total, [min(math.ceil(floor / r) * r, r * c) for r, c in shapes])
    down = [count // r * r for count, r in zip(free, rows, strict=True)]
    remainders = [(count - d) / r for count, d, r in zip(free, down, rows, strict=True)]
    best = sorted((i for i in range(len(rows)) if remainders[i]), key=lambda i: (-remainders[i], i))
    options = [[d + rows[i] * (i in best[:cut]) for i, d in enumerate(down)] for cut in range(len(best) + 1)]
    assert counts == min(options, key=lambda option: abs(sum(option) - total))


def free_counts(scores: list[Tensor], total: int, floors: list[int]) -> list[int]:
    """Single weights: the floors' best of each layer, then the best of all others, until there are as many as asked."""
    values = [float(x) for score in scores for x in score.flatten()]
    layer = np.repeat(np.arange(len(scores)), [score.numel() for score in scores])
    line = order(values)
    first = [i for n, floor in enumerate(floors) for i in [j for j in line if layer[j] == n][:floor]]
    taken = first + [i for i in line if i not in first][: max(0, total - len(first))]
    return [sum(layer[i] == n for i in taken) for n in range(len(scores))]

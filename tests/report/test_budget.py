"""What ERK and uniform would give the layers of a run, in whole numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from granet.report.budget import fixed_counts


@pytest.mark.parametrize(
    ("shapes", "total", "erk", "uniform"),
    [
        # ERK shares 49 as 11 to 26: 14.57 and 34.43.
        ([(4, 1, 3, 3), (10, 16)], 49, [15, 34], [9, 40]),
        # ERK shares 52 as 4 to 20; the 8.67 of the first layer are more than it has.
        ([(2, 2), (10, 10)], 52, [4, 48], [2, 50]),
        # A weight for each layer, but not two: uniform would leave the first without.
        ([(1, 2), (20, 20)], 2, [1, 1], [1, 1]),
        # Not even that.
        ([(2, 2), (2, 2)], 1, [1, 0], [1, 0]),
        ([(2, 2), (10, 10)], 0, [0, 0], [0, 0]),
        ([(2, 2), (10, 10)], 104, [4, 100], [4, 100]),
    ],
)
def test_by_hand(shapes: list[tuple[int, ...]], total: int, erk: list[int], uniform: list[int]) -> None:
    assert fixed_counts(shapes, total) == {"ERK": erk, "uniform": uniform}


@given(st.data())
def test_exactly_as_many_weights(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6))
    sizes = [math.prod(shape) for shape in shapes]
    total = data.draw(st.integers(0, sum(sizes)))
    for budget in fixed_counts(shapes, total).values():
        assert sum(budget) == total
        assert all(0 <= count <= size for count, size in zip(budget, sizes, strict=True))
        assert total < len(sizes) or min(budget) > 0
    uniform = fixed_counts(shapes, total)["uniform"]
    if min(size * total // sum(sizes) for size in sizes) >= 1:  # no floor in the way: nearest whole numbers
        assert all(abs(count - size * total / sum(sizes)) < 1 for count, size in zip(uniform, sizes, strict=True))

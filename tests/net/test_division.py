"""Dividing a total among layers: exact, in proportion, within the room there is."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from granet.net.division import divide


def divided(total: int, shares: list[float], room: list[int]) -> list[int]:
    return divide(torch.tensor(total), torch.tensor(shares, dtype=torch.float64), torch.tensor(room)).tolist()


def in_proportion(total: int, shares: list[int], room: list[int]) -> list[Fraction]:
    """In proportion among layers that are not full; whoever would overflow is filled, and the rest is shared anew."""
    full: set[int] = set()
    while True:
        left = total - sum(room[i] for i in full)
        weight = sum(share for i, share in enumerate(shares) if i not in full)
        exact = [
            Fraction(room[i]) if i in full else Fraction(left * share, weight) if weight else Fraction(0)
            for i, share in enumerate(shares)
        ]
        over = {i for i, value in enumerate(exact) if i not in full and value > room[i]}
        if not over:
            return exact
        full |= over


layers = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=8)


@given(layers, st.floats(0, 1))
def test_it_is_exact_and_as_near_to_proportion_as_whole_numbers_can_be(layers, part: float) -> None:
    shares, room = [share for share, _ in layers], [space for _, space in layers]
    total = int(part * sum(room))
    result = divided(total, shares, room)
    assert sum(result) == total
    assert all(0 <= count <= space for count, space in zip(result, room, strict=True))
    if sum(shares) == 0:
        shares = room
    if total > sum(space for share, space in zip(shares, room, strict=True) if share):
        assert all(count == space for count, share, space in zip(result, shares, room, strict=True) if share)
        return  # what is left goes to layers without a share
    exact = in_proportion(total, shares, room)
    assert all(abs(count - value) < 1 for count, value in zip(result, exact, strict=True))
    up = [value % 1 for count, value in zip(result, exact, strict=True) if count > value]
    down = [value % 1 for count, value in zip(result, exact, strict=True) if count < value]
    assert not up or not down or min(up) >= max(down)  # the largest remainders are rounded up


@pytest.mark.parametrize(
    ("total", "shares", "room", "expected"),
    [
        (10, [1, 1, 1], [9, 9, 9], [4, 3, 3]),  # equal remainders: the earlier layer
        (11, [1, 1, 1], [9, 9, 9], [4, 4, 3]),
        (10, [6, 3, 1], [9, 9, 9], [6, 3, 1]),
        (10, [6, 3, 1], [2, 9, 9], [2, 6, 2]),  # the first is full; 8 in proportion 3 to 1
        (10, [6, 3, 1], [2, 3, 9], [2, 3, 5]),  # and then the second
        (10, [1, 0, 1], [2, 9, 2], [2, 6, 2]),  # no share, but nowhere else to go
        (7, [0, 0, 0], [10, 20, 40], [1, 2, 4]),  # nothing to go by: in proportion to room
        (0, [1, 2, 3], [5, 5, 5], [0, 0, 0]),
        (99, [1, 2, 3], [5, 6, 7], [5, 6, 7]),
        (4, [float("nan"), float("inf"), 1.0], [5, 5, 5], [0, 0, 4]),
        (3, [1e-300, 1e-300], [5, 5], [2, 1]),
        (6, [-3.0, 1.0, 2.0], [9, 9, 9], [0, 2, 4]),
    ],
)
def test_by_hand(total: int, shares: list[float], room: list[int], expected: list[int]) -> None:
    assert divided(total, shares, room) == expected


def test_millions_of_weights_lose_none() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        room = torch.randint(0, 10**8, (60,), generator=generator)
        shares = torch.rand(60, generator=generator).pow(8)
        total = (room.sum() * float(torch.rand((), generator=generator))).long()
        result = divide(total, shares, room)
        assert result.sum() == total
        assert (result <= room).all()
        assert (result >= 0).all()


in_quanta = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 12), st.integers(1, 9)), min_size=1, max_size=8)


@given(in_quanta, st.floats(0, 1))
def test_in_quanta_it_is_as_near_as_a_quantum_allows(layers, part: float) -> None:
    shares, quanta = [share for share, _, _ in layers], [quantum for _, _, quantum in layers]
    room = [number * quantum for _, number, quantum in layers]
    total = int(part * sum(room))
    given_quanta = torch.tensor(quanta)
    result = divide(torch.tensor(total), torch.tensor(shares).double(), torch.tensor(room), given_quanta).tolist()
    assert all(count % q == 0 and 0 <= count <= space for count, q, space in zip(result, quanta, room, strict=True))
    assert abs(sum(result) - total) <= max(quanta) / 2


def test_in_quanta_by_hand() -> None:
    """30 as 3 to 2 to 1 is 15, 10 and 5: 3.75, 2 and 2.5 quanta. Down that is 26, one more of the first makes 30."""
    found = divide(torch.tensor(30), torch.tensor([3.0, 2.0, 1.0]), torch.tensor([40, 40, 40]), torch.tensor([4, 5, 2]))
    assert found.tolist() == [16, 10, 4]


def test_a_remainder_is_a_share_of_a_quantum() -> None:
    """33 as 5 to 1 is 27.5 and 5.5: 3.4 quanta of 8 and 2.75 of 2, so that the second is rounded up first."""
    found = divide(torch.tensor(33), torch.tensor([5.0, 1.0]), torch.tensor([40, 22]), torch.tensor([8, 2]))
    assert found.tolist() == [24, 6]

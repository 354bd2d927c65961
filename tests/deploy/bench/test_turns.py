"""Candidates take turns; the first call of a turn is for the caches."""

from __future__ import annotations

import pytest

from granet.deploy.bench import turns
from granet.deploy.bench.turns import ROUNDS, Times, take_turns, turn_of


def test_in_every_round_each_has_one_turn() -> None:
    order: list[str] = []

    def turn(name: str, took: float) -> turns.Turn:
        return lambda seconds: order.append(f"{name} {seconds:g}") or [took, 3 * took, took]  # type: ignore[func-returns-value]

    found = take_turns({"a": turn("a", 1.0), "b": turn("b", 0.5), "c": turn("c", 0.25)}, 2.0 * ROUNDS)
    assert found == {"a": Times(1.0, 1.0, 0.0), "b": Times(0.5, 0.5, 0.0), "c": Times(0.25, 0.25, 0.0)}
    rounds = [order[at : at + 3] for at in range(0, len(order), 3)]
    assert len(rounds) == ROUNDS and {tuple(sorted(each)) for each in rounds} == {("a 2", "b 2", "c 2")}
    assert len(set(map(tuple, rounds))) > 1  # not always after the same neighbour


@pytest.mark.parametrize(
    ("calls", "seconds", "counted"),
    [([5.0, 2.0, 3.0, 2.0], 6.5, [2.0, 3.0, 2.0]), ([20.0, 10.0], 6.5, [10.0]), ([20.0, 10.0], 0.0, [10.0])],
)
def test_the_first_call_does_not_count(
    calls: list[float], seconds: float, counted: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, left = [0.0], iter(calls)
    monkeypatch.setattr(turns.time, "perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += next(left)

    assert turn_of(call)(seconds) == counted
    assert next(left, None) is None


def test_one_that_stops_has_no_times() -> None:
    left = iter([[1.0], [1.0], []])
    assert take_turns({"a": lambda seconds: [2.0], "b": lambda seconds: next(left, [])}, 1.0).keys() == {"a"}

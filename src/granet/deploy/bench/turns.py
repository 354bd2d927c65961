"""Several ways to do the same, run in turn, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ROUNDS = 25
"""Many and short: what else runs on a processor may slow it by half, for seconds, and is to meet all in equal parts."""

Turn = Callable[[float], list[float]]
"""Runs something for about so many seconds, and gives how long each of its calls took."""


@dataclass(frozen=True)
class Times:
    """Of one of them, in seconds."""

    median: float
    """Of the medians of its turns."""
    least: float
    """Of all calls."""
    spread: float
    """By what share of the median the medians of its turns differ."""


def take_turns(turns: Mapping[str, Turn], seconds: float) -> dict[str, Times]:
    """Each runs for about so many seconds altogether, in rounds; the order of a round is random, the same each time.

    One that gives no times in one of its turns has none.
    """
    order, shuffle = list(turns), random.Random(0).shuffle
    taken: dict[str, list[list[float]]] = {name: [] for name in turns}
    for _ in range(ROUNDS):
        shuffle(order)
        for name in order:
            taken[name].append(turns[name](seconds / ROUNDS))
    return {name: summary(rounds) for name, rounds in taken.items() if all(rounds)}


def summary(rounds: Sequence[Sequence[float]]) -> Times:
    """
    >>> summary([[2.0, 2.0, 9.0], [3.0, 1.0, 3.0], [4.0]])
    Times(median=3.0, least=1.0, spread=0.6666666666666666)
    """
    medians = [statistics.median(calls) for calls in rounds]
    middle = statistics.median(medians)
    return Times(middle, min(map(min, rounds)), (max(medians) - min(medians)) / middle)


def turn_of(call: Callable[[], object]) -> Turn:
    """A first call of each turn does not count: it finds caches full of what others needed."""

    def turn(seconds: float) -> list[float]:
        call()
        took: list[float] = []
        while sum(took) < seconds or not took:
            begun = time.perf_counter()
            call()
            took.append(time.perf_counter() - begun)
        return took

    return turn

"""A knob found by halving."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from granet.search import bisect_knob
from refusals import refused


@given(st.floats(0.05, 0.95), st.floats(0.2, 5.0))
def test_a_monotone_knob_is_found(target: float, power: float) -> None:
    knob = bisect_knob(lambda knob: knob**power, target, 0, 1, tolerance=0.001, trials=30)
    assert abs(knob**power - target) <= 0.001


def test_a_knob_that_works_downwards_has_its_ends_swapped() -> None:
    knob = bisect_knob(lambda knob: math.exp(-knob), 0.9, low=8, high=0, tolerance=0.01)
    assert math.exp(-knob) == pytest.approx(0.9, abs=0.01)


def test_the_ends_are_not_tried_and_the_search_stops_at_once() -> None:
    tried: list[float] = []

    def sparsity_of(knob: float) -> float:
        tried.append(knob)
        return knob

    assert bisect_knob(sparsity_of, 0.7, 0, 1, tolerance=0.06) == 0.75
    assert tried == [0.5, 0.75]
    assert bisect_knob(sparsity_of, 0.75, 0, 1, tolerance=0) == 0.75


def test_what_cannot_be_reached_is_refused_with_what_was() -> None:
    with refused("sparsity", 0.9, "5", "0.8", "0.5"):
        bisect_knob(lambda knob: 0.8, 0.9, 0, 1, trials=5)
    with refused("sparsity", 0.9):
        bisect_knob(lambda knob: math.nan, 0.9, 0, 1, trials=5)
    with refused("trials", 0):
        bisect_knob(lambda knob: knob, 0.9, 0, 1, trials=0)


def test_the_nearest_is_named_even_if_a_later_trial_was_worse() -> None:
    values = iter([0.80, 0.85, 0.20])
    with refused("sparsity", 0.9, "nearest was 0.85, with the knob at 0.75"):
        bisect_knob(lambda knob: next(values), 0.9, 0, 1, trials=3)
    assert list(values) == []  # as many trials as allowed


def test_half_a_percent_is_near_enough_unless_told_otherwise() -> None:
    assert bisect_knob(lambda knob: knob, 0.746, 0, 1) == 0.75
    assert bisect_knob(lambda knob: knob, 0.744, 0, 1) < 0.75

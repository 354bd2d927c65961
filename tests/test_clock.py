"""Times as users write them become the optimizer steps they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from granet import Clock, GraNet, RigL
from granet.clock import share_as_text
from refusals import refused


@pytest.mark.parametrize(
    ("time", "step"),
    [(0, 0), (1000, 1000), ("0ep", 0), ("80ep", 28_160), ("0.5ep", 176), ("0%", 0), ("50%", 28_160), ("100%", 56_320)],
)
def test_a_time_is_so_many_steps(time: int | str, step: int) -> None:
    assert Clock(0, total_steps=56_320, steps_per_epoch=352).steps(time) == step


@pytest.mark.parametrize(("time", "step"), [(0.0, 0), (-0.0, 0), (0.5, 500), (0.29, 290), (1.0, 1000), (1, 1)])
def test_a_number_with_a_point_is_a_share(time: float, step: int) -> None:
    assert Clock(0, total_steps=1000).steps(time) == step


@given(share=st.floats(0, 1), total=st.integers(1, 10**9))
def test_a_share_is_meant_as_written(share: float, total: int) -> None:
    clock = Clock(0, total_steps=total)
    assert clock.steps(share) == clock.steps(share_as_text(share)) == int(Fraction(repr(share)) * total)


def test_a_share_is_one_value_however_it_is_written() -> None:
    assert GraNet(sparsity=0.9, prune_end=0.5) == GraNet(sparsity=0.9, prune_end="50%")
    assert GraNet(sparsity=0.9, prune_end=np.float64(0.125), start=0.0).prune_end == "12.5%"
    assert RigL(sparsity=0.9, end=1.0) == RigL(sparsity=0.9, end="100%") != RigL(sparsity=0.9, end=1)
    assert RigL(sparsity=0.9, end=1.0).updates(Clock(0, 1000)) == range(100, 1000, 100)


def test_a_part_of_a_step_is_rounded_down() -> None:
    clock = Clock(0, total_steps=999, steps_per_epoch=391)
    assert clock.steps("50%") == 499
    assert clock.steps("0.5ep") == 195


def test_a_number_of_steps_needs_no_lengths() -> None:
    assert Clock(7).steps(30) == 30


@pytest.mark.parametrize(("time", "unit"), [("0.29ep", 100), ("0.57ep", 100), ("32.3%", 1000), ("64.6%", 1000)])
def test_a_decimal_fraction_is_meant_as_written(time: str, unit: int) -> None:
    """0.29 of 100 steps is 29, although 0.29 * 100 is 28.999999999999996 in binary."""
    clock = Clock(0, total_steps=unit, steps_per_epoch=unit)
    assert clock.steps(time) == int(Fraction(time.rstrip("ep%")) * unit / (100 if "%" in time else 1))


@settings(max_examples=examples(200))
@given(hundredths=st.integers(0, 10_000), unit=st.integers(1, 10**7))
def test_every_decimal_fraction_is_exact(hundredths: int, unit: int) -> None:
    amount = f"{hundredths // 100}.{hundredths % 100:02d}"
    clock = Clock(0, total_steps=unit, steps_per_epoch=unit)
    assert clock.steps(f"{amount}ep") == hundredths * unit // 100
    assert clock.steps(f"{amount}%") == hundredths * unit // 10_000


@pytest.mark.parametrize(
    "time", ["", "30", "ep", "30 ep", "-1ep", "-5%", "1e3", "30epochs", "5.ep", ".5ep", " 50%", "nan%", "50%%", "50%\n"]
)
def test_a_time_that_is_none_is_refused(time: str) -> None:
    with refused("end", time, "'30ep'"):
        Clock(0, 1000, 10).steps(time, "end")


@pytest.mark.parametrize("time", [None, 1.5, -0.1, 10.0, math.nan, math.inf, True, False, (3,)])
def test_a_time_of_another_type_is_refused(time: object) -> None:
    with refused("every", time):
        Clock(0, 1000, 10).steps(time, "every")  # type: ignore[arg-type]


def test_a_negative_time_is_refused() -> None:
    with refused("start", -1):
        Clock(0).steps(-1, "start")


def test_more_than_all_of_training_is_refused() -> None:
    with refused("end", "100.5%", "'100%'"):
        Clock(0, 1000).steps("100.5%", "end")


def test_epochs_need_the_length_of_an_epoch() -> None:
    with refused("end", "3ep"):
        Clock(0, total_steps=1000).steps("3ep", "end")


def test_a_share_needs_the_length_of_training() -> None:
    with refused("total_steps", None):
        Clock(0, steps_per_epoch=10).steps("50%", "end")
    with refused("total_steps", None):
        _ = Clock(5).progress


@pytest.mark.parametrize("name", ["total_steps", "steps_per_epoch"])
@pytest.mark.parametrize("value", [0, -3, 2.5, 10.0, "10", True])
def test_lengths_are_positive_whole_numbers(name: str, value: object) -> None:
    with refused(name, value):
        Clock(0, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("whole", [np.int64, np.uint8, torch.tensor], ids=["int64", "uint8", "tensor"])
def test_whole_numbers_of_any_kind_become_plain_ones(whole: Callable[[int], Any]) -> None:
    clock = Clock(0, total_steps=whole(100), steps_per_epoch=whole(10))
    assert [type(length) for length in (clock.total_steps, clock.steps_per_epoch)] == [int, int]
    assert (clock.steps("50%"), clock.steps("2ep"), clock.steps(whole(7))) == (50, 20, 7)


def test_progress_ends_at_one() -> None:
    assert [Clock(step, total_steps=8).progress for step in (0, 2, 8, 9)] == [0.0, 0.25, 1.0, 1.0]

"""The learning rate of each step, against the formulas written out."""

import math

import pytest

from granet.clock import Clock
from granet.training.learning_rate import learning_rate
from granet.training.recipe import Recipe
from refusals import refused

CLOCK = Clock(0, total_steps=100, steps_per_epoch=10)


def test_multistep() -> None:
    rate = learning_rate(Recipe(lr=1.0, milestones=("50%", "7.5ep"), gamma=0.1), CLOCK)
    assert [rate(step) for step in (0, 49, 50, 74, 75, 99)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_cosine_falls_to_zero() -> None:
    rate = learning_rate(Recipe(lr=2.0, schedule="cosine"), CLOCK)
    assert [rate(step) for step in (0, 25, 50)] == pytest.approx([2.0, 1 + math.sqrt(0.5), 1.0])
    assert 0 < rate(99) < 0.001


@pytest.mark.parametrize("schedule", ["cosine", "multistep"])
def test_warm_up_rises_in_equal_parts_and_hands_over(schedule: str) -> None:
    rate = learning_rate(Recipe(lr=0.6, schedule=schedule, warm_up="0.5ep"), CLOCK)
    assert [rate(step) for step in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert rate(6) <= 0.6


def test_cosine_falls_over_the_steps_after_the_warm_up() -> None:
    rate = learning_rate(Recipe(lr=0.6, schedule="cosine", warm_up="2ep"), CLOCK)
    assert [rate(step) for step in (20, 40, 60, 80)] == pytest.approx(
        [0.3 * (1 + math.cos(math.pi * share)) for share in (0, 0.25, 0.5, 0.75)]
    )


def test_milestones_count_from_the_first_step_and_also_within_the_warm_up() -> None:
    rate = learning_rate(Recipe(lr=0.6, milestones=(3, "2ep"), gamma=0.1, warm_up=5), CLOCK)
    assert [rate(step) for step in (2, 3, 19, 20)] == pytest.approx([0.3, 0.04, 0.06, 0.006])


@pytest.mark.parametrize("warm_up", [99, 100])
def test_a_warm_up_is_shorter_than_training(warm_up: int) -> None:
    recipe = Recipe(lr=1.0, schedule="cosine", warm_up=warm_up)
    if warm_up == 99:
        assert learning_rate(recipe, CLOCK)(99) == pytest.approx(1.0)
    else:
        with refused("warm_up", 100, "100"):
            learning_rate(recipe, CLOCK)

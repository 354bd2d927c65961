"""Recipes: values that survive JSON and refuse nonsense by name."""

import json
from dataclasses import replace

import pytest

from granet.training.recipe import Recipe


def test_json_round_trip() -> None:
    recipe = Recipe(method="rigl", method_fields={"sparsity": 0.8}, milestones=(100, "50%"), epochs=3)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_dense_twin_differs_in_method_only() -> None:
    recipe = Recipe(seed=3, lr=0.05)
    twin = recipe.dense_twin()
    assert (twin.method, dict(twin.method_fields)) == ("dense", {})
    assert replace(twin, method=recipe.method, method_fields=recipe.method_fields) == recipe


def test_clock_leaves_the_incomplete_batch_out() -> None:
    clock = Recipe(batch_size=64, epochs=10).clock(1264)
    assert (clock.steps_per_epoch, clock.total_steps) == (19, 190)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 1},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"momentum": 1.0},
        {"momentum": 0.0, "nesterov": True},
        {"weight_decay": -1e-4},
        {"gamma": 0.0},
        {"crop": -1},
        {"seed": -1},
    ],
)
def test_wrong_values_are_named(wrong: dict[str, object]) -> None:
    name, value = list(wrong.items())[-1]
    with pytest.raises(ValueError, match=f"^{name}={value!r}: "):
        Recipe(**wrong)


def test_batch_larger_than_the_set_and_unknown_field() -> None:
    with pytest.raises(ValueError, match=r"^batch_size=128: must be at most 100"):
        Recipe(batch_size=128).clock(100)
    with pytest.raises(ValueError, match="'learning_rate'"):
        Recipe.from_dict({"learning_rate": 0.1})

"""Recipes: values that survive JSON and refuse nonsense by name."""

import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest

import granet
from granet.training.recipe import Recipe, method_class
from granet.training.rundir import run_name
from refusals import refused


def test_stretch_multiplies_the_epochs() -> None:
    assert [Recipe(epochs=n, stretch=s).total_epochs for n, s in ((4, 1.5), (3, 1.2), (100, 0.29))] == [6, 4, 29]


def test_a_method_takes_those_of_the_default_fields_that_say_something_there() -> None:
    taken = {name: dict(Recipe(method=name).method_fields) for name in ("granet", "snip", "prune-once")}
    assert taken == {"granet": {"sparsity": 0.9, "every": "1ep"}, "snip": {"sparsity": 0.9}, "prune-once": {}}


def test_json_round_trip() -> None:
    recipe = Recipe(method="rigl", method_fields={"sparsity": 0.8}, milestones=(100, "50%"), epochs=3)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_dense_twin_differs_in_method_only() -> None:
    recipe = Recipe(seed=3, lr=0.05)
    twin = recipe.dense_twin()
    assert (twin.method, dict(twin.method_fields)) == ("dense", {})
    assert replace(twin, method=recipe.method, method_fields=recipe.method_fields) == recipe


def test_a_run_with_a_parent_has_the_plain_dense_twin() -> None:
    plain = Recipe().dense_twin()
    for run in (Recipe(method="lth", parent="first"), Recipe(parent="first", branch_epoch=3, hold=2)):
        assert run.dense_twin() == plain and run_name(run.dense_twin()) == run_name(plain)


def test_a_dense_branch_is_its_own_twin() -> None:
    branch = Recipe(method="dense", method_fields={}, parent="first", branch_epoch=3)
    assert branch.dense_twin() == branch


FRACTIONS = [item.name for item in fields(Recipe) if item.type == "float"]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400], ids=["inf", "-inf", "nan", "huge"])
@pytest.mark.parametrize("name", FRACTIONS)
def test_every_fraction_is_finite(name: str, value: float) -> None:
    with refused(name, value):
        Recipe(**{name: value})


@pytest.mark.parametrize(
    ("method", "whole", "fraction"),
    [
        ("granet", {"sparsity": 0.5, "initial_sparsity": 0}, {"sparsity": 0.5, "initial_sparsity": 0.0}),
        ("sis", {"tolerance": 0}, {"tolerance": 0.0}),
        ("vd", {"kl_scale": 1, "examples": 9, "every": 5}, {"kl_scale": 1.0, "examples": 9, "every": 5}),
    ],
)
def test_a_whole_number_in_a_method_is_as_good_as_a_fraction(
    method: str, whole: dict[str, object], fraction: dict[str, object]
) -> None:
    one, other = (Recipe(method=method, method_fields=given) for given in (whole, fraction))
    assert one == other and run_name(one) == run_name(other)
    assert {name: type(value) for name, value in one.method_fields.items()} == {
        name: type(value) for name, value in fraction.items()
    }


def test_a_tuple_among_the_fields_of_a_method_is_the_list_that_json_makes_of_it() -> None:
    """A run of one's own method would else not be found again."""
    fields = {"rates": (0.1, 0.2), "pairs": (("a", 1), ("b", np.int64(2))), "table": {1: (2, {"c": (3,)})}}
    recipe = Recipe(method="mine", method_fields=fields)
    assert recipe.method_fields["table"] == {"1": [2, {"c": [3]}]}
    assert recipe == Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))


def test_a_negative_zero_is_zero() -> None:
    one, other = (Recipe(ema=zero, method_fields={"sparsity": zero}) for zero in (0.0, -0.0))
    assert one == other and run_name(one) == run_name(other)
    assert "-0." not in json.dumps(other.to_dict())


def test_numbers_of_numpy_are_as_good_as_plain_ones() -> None:
    fields = {"sparsity": np.float64(0.8), "every": np.int64(5), "regrow": np.int8(0)}
    given = Recipe(epochs=np.int64(9), lr=np.float64(0.2), seed=np.uint8(3), keep=(np.int32(2),), method_fields=fields)
    plain = Recipe(epochs=9, lr=0.2, seed=3, keep=(2,), method_fields={"sparsity": 0.8, "every": 5, "regrow": 0.0})
    assert given == plain and run_name(given) == run_name(plain)
    assert json.dumps(given.to_dict()) == json.dumps(plain.to_dict())


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
        {"padding": "edge"},
        {"seed": -1},
        {"stretch": 1e308},
        {"stretch": 1e19},
        {"epochs": 10**400},
        {"width": 0.0},
        {"nesterov": False, "momentum": -0.1},
        {"schedule": "linear"},
        {"label_smoothing": 1.0},
        {"label_smoothing": -0.1},
        {"clip": -1.0},
        {"ema": 1.0},
        {"ema": -0.1},
        {"precision": "float16"},
        {"seed": 2**63},
        {"epochs": 4, "stretch": 0.125},
        {"parent": "first", "branch_epoch": -1},
        {"parent": "first", "branch_epoch": 1, "hold": -1},
    ],
)
def test_wrong_values_are_named(wrong: dict[str, object]) -> None:
    name, value = list(wrong.items())[-1]
    with refused(name, value):
        Recipe(**wrong)


@pytest.mark.parametrize(
    "limit",
    [
        {"momentum": 0.0, "nesterov": False},
        {"weight_decay": 0.0, "batch_size": 2, "seed": 2**63 - 1},
        {"epochs": 1, "milestones": (), "stretch": 0.6},
        {"epochs": 4, "keep": (1, 3), "parent": "first", "branch_epoch": 3},
        {"epochs": 4, "parent": "first", "branch_epoch": 1, "hold": 3},
    ],
)
def test_the_limits_themselves_are_allowed(limit: dict[str, object]) -> None:
    assert {name: getattr(Recipe(**limit), name) for name in limit} == limit


def test_batch_larger_than_the_set_and_unknown_field() -> None:
    assert Recipe(batch_size=100).clock(100).steps_per_epoch == 1
    with refused("batch_size", 128, "100"):
        Recipe(batch_size=128).clock(100)
    with pytest.raises(ValueError, match="'learning_rate'"):
        Recipe.from_dict({"learning_rate": 0.1})


def test_a_method_is_dense_or_one_of_the_registry() -> None:
    assert method_class("dense") is None and method_class("gmp") is granet.GMP
    with refused("method", "gpm"):
        method_class("gpm")


@pytest.mark.parametrize("method", [info.name for info in granet.list_methods()])
def test_without_fields_a_method_has_the_defaults_that_it_can_use(method: str) -> None:
    recipe = Recipe(method=method)
    made = granet.create_method(method, **recipe.method_fields)
    assert getattr(made, "every", "1ep") == "1ep"
    assert hasattr(made, "rate") or made.sparsity == 0.9


def test_without_fields_a_dense_run_has_none_and_a_wrong_name_is_told() -> None:
    assert Recipe(method="dense") == Recipe().dense_twin()
    assert replace(Recipe(), seed=1) == Recipe(seed=1)
    assert run_name(Recipe(method="rigl")) == "digits-digits_net-rigl-0.9-seed0-281b751d"  # as ever
    with refused("method", "graent", "'granet'"):
        Recipe(method="graent")


def test_a_share_of_training_is_one_value_however_it_is_written() -> None:
    assert Recipe(milestones=(0.5,), warm_up=0.02) == Recipe(milestones=("50%",), warm_up="2%")
    assert Recipe(method_fields={"every": 0.05}) == Recipe(method_fields={"every": "5%"})


def test_lists_are_taken_as_tuples() -> None:
    assert Recipe(milestones=["50%"], keep=[1]) == Recipe(milestones=("50%",), keep=(1,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"no_decay": "*bias"}, ("no_decay", "*bias")),
        ({"keep": (1.5,)}, ("keep", [1.5])),
        ({"epochs": 2.0}, ("epochs", 2.0)),
        ({"seed": True}, ("seed", True)),
        ({"lr": "0.1"}, ("lr", "0.1")),
        ({"flip": 1}, ("flip", 1)),
        ({"warm_up": "5x"}, ("warm_up", "5x", "(1000)", "'30ep')", "(0.5 or '50%')")),
        ({"milestones": (5, -1)}, ("milestones", -1)),
        ({"milestones": ("150%",)}, ("milestones", "150%", "'100%'")),
        ({"warm_up": None}, ("warm_up", None)),
    ],
    ids=str,
)
def test_fields_have_their_types(wrong: dict[str, object], says: tuple) -> None:
    with refused(*says):
        Recipe(**wrong)  # type: ignore[arg-type]

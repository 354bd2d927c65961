"""Every field of every method refuses what it cannot be: alone, beside other fields, and in the training it is for."""

from __future__ import annotations

import dataclasses
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import nn

import granet
from granet import Clock
from refusals import refused

INFOS = {info.name: info for info in granet.list_methods()}
SHARE = (1.0, 1, -0.1, 1.5, nan, inf, "0.9", "half")
RATIO = (1.01, 1.5, 2, -0.1, -1, nan, "half", True, False)
COUNT = (0, -1, 1.5, 2.0, 2.5, 1e4, True, "3")
NUMBER = (nan, inf, -inf, "-100", "small", True, False)
NOT_NEGATIVE = (-1e-4, -1.0, *NUMBER)
ABOVE_0 = (0, 0.0, "x", *NOT_NEGATIVE)
SWITCH = ("no", "false", None, 0, 1)
NAME = ("x", "ERK", "erdos", "layer", "even", "dense", None, ["erk"])
TIME = ("soon", "x", "120%", "12x", 1.5, 2.5, -1, None, True)
WRONG: dict[str, tuple[Any, ...]] = {
    "sparsity": (*SHARE, None),
    "pattern": ("", "2x", "block", "4:4", "4:2", "0:4", "x4", "0x4", "4x", "-1x4", "2:4 ", "Filter", None, 4),
    "distribution": NAME,
    "initial_distribution": NAME[:-2],
    "score": ("size", "LAMP", None),
    **dict.fromkeys(("initial_sparsity", "last_density", "tolerance"), SHARE),
    **dict.fromkeys(("regrow", "regrow_end", "momentum"), RATIO),
    **dict.fromkeys(("batch_count", "examples", "grow_batch_count", "iterations", "rounds"), COUNT),
    **dict.fromkeys(("l1", "noise", "kl_scale", "s_decay"), NOT_NEGATIVE),
    **dict.fromkeys(("s_init", "log_sigma2", "threshold"), NUMBER),
    "temperature": ABOVE_0,
    "rate": (0, 1, 1.5, -0.1, True, "0.5"),
    **dict.fromkeys(("dense_first", "step_on_update"), SWITCH),
    **dict.fromkeys(("start", "end", "prune_end"), TIME),
    **dict.fromkeys(("every", "log_every"), (*TIME, 0, "0%")),
}
OF_ONE_METHOD: dict[tuple[str, str], tuple[Any, ...]] = {("dsr", "threshold"): ABOVE_0}


@pytest.mark.parametrize("name", INFOS)
def test_alone(name: str) -> None:
    for field in dataclasses.fields(INFOS[name].cls):
        for value in OF_ONE_METHOD.get((name, field.name), WRONG[field.name]):
            with refused(field.name, value):
                granet.create_method(name, **{"sparsity": 0.5, field.name: value})


def test_the_ends_of_their_ranges_are_allowed() -> None:
    for name, field, values in (
        ("granet", "regrow", (0.0, 1.0)), ("granet", "regrow_end", (0.0, 1.0)), ("set", "regrow", (0.0, 1.0)),
        ("snfs", "momentum", (0.0, 1.0)), ("granet", "sparsity", (0.0,)), ("deep-r", "l1", (0.0,)),
        ("vd", "kl_scale", (0.0,)), ("str", "s_decay", (0.0, None)), ("dsr", "tolerance", (0.0,)),
    ):  # fmt: skip
        for value in values:
            assert getattr(granet.create_method(name, **{"sparsity": 0.5, field: value}), field) == value


TOGETHER: list[tuple[str, dict[str, Any], str]] = [
    ("granet", {"initial_sparsity": 0.6}, "initial_sparsity"),
    ("granet", {"initial_distribution": "erk", "distribution": "uniform"}, "initial_distribution"),
    ("gmp", {"pattern": "2:4", "distribution": "uniform", "dense_first": True}, "dense_first"),
    *(("rigl", {"sparsity": share, "pattern": pattern}, "sparsity")
      for pattern, share in (("2:4", 0.9), ("1:4", 0.5), ("2:4", 0.499))),
    ("wanda", {"sparsity": 0.75, "pattern": "2:4"}, "sparsity"),
    ("prune-once", {"rate": 0.5, "pattern": "2:4"}, "pattern"),
    ("sis", {"tolerance": 0.1}, "tolerance"),
    *((name, {field: 0.5}, field) for name, field in (("granet", "regrown"), ("rigl", "initial_sparsity"))),
    *((name, {"score": "lamp"}, "score") for name in ("dpf", "gmp-original")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "field"), TOGETHER)
def test_beside_others(name: str, fields: dict[str, Any], field: str) -> None:
    with refused(field, fields[field]):
        granet.create_method(name, **{"sparsity": 0.5} | fields)


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        ("granett", "did you mean 'granet'"),
        ("grannet", "did you mean 'granet'"),
        *((n, "granet, ") for n in ("", None, 3, [])),
    ],
)
def test_names_of_methods(name: Any, tells: str) -> None:
    with refused("method", name, tells):
        granet.create_method(name, sparsity=0.9)


def test_a_sparsity_that_nothing_gives() -> None:
    for name in ("granet", "sis"):
        with refused("sparsity"):
            granet.create_method(name)


TIMES: list[tuple[str, dict[str, Any], str]] = [
    *((name, fields, next(iter(fields))) for name in ("granet", "gmp") for fields in (
        {"prune_end": 50, "start": 60}, {"prune_end": 50, "start": 50}, {"prune_end": "50%", "start": 50},
        {"prune_end": 101}, {"prune_end": "6ep"}, {"every": 200}, {"every": 1000}, {"every": "0.001ep"},
        {"every": 10, "start": 10, "prune_end": 19},
    )),
    *((name, fields, next(iter(fields))) for name in ("rigl", "rigl-itop") for fields in (
        {"end": 101}, {"every": 100}, {"every": 10, "end": "0%"},
    )),
    ("deep-r", {"end": 101}, "end"),
    ("deep-r", {"end": 1}, "end"),
    ("gs", {"rounds": 4, "start": 10, "prune_end": 13}, "rounds"),
    ("gs", {"rounds": 10, "start": 50, "prune_end": 20}, "rounds"),
    ("gs", {"prune_end": 200}, "prune_end"),
    ("vd", {"end": 3, "start": 7}, "end"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "field"), TIMES, ids=str)
def test_for_its_training(name: str, fields: dict[str, Any], field: str) -> None:
    usual = {"every": 10, "end": 100, "prune_end": 80}
    has = {item.name for item in dataclasses.fields(INFOS[name].cls)}
    method = granet.create_method(name, sparsity=0.9, **{k: v for k, v in usual.items() if k in has} | fields)
    model = nn.Linear(20, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused(field, fields[field], unchanged=(model, optimizer)):
        granet.sparsify(model, optimizer, method, total_steps=100, steps_per_epoch=20)


def test_a_training_of_unknown_length() -> None:
    for method, clock, field, value in (
        (granet.GraNet(sparsity=0.9, prune_end=80), Clock(0), "total_steps", None),
        (granet.SET(sparsity=0.9), Clock(0, 1000), "every", "1ep"),
    ):
        with refused(field, value):
            method.updates(clock)

"""Which dense engine is the best one, and the ratios against it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from granet.cli.bench import _said
from granet.deploy.bench import Comparison, Result
from granet.deploy.bench.turns import Times


def result(label: str, seconds: float, precision: str = "float32", dense: bool = True) -> Result:
    return Result(label, precision, dense, Times(seconds, seconds / 2, 0.1), 1e-7, 1e-8, 1000, None)


GRANET = result("granet", 0.010, dense=False)
COMPACT = result("granet.compact", 0.001, dense=False)
TORCH, ENGINE, SHORT = (
    result("PyTorch", 0.080),
    result("OpenVINO", 0.040),
    result("OpenVINO, 16 bit", 0.015, "bfloat16"),
)


def test_the_best_dense_engine_is_neither_ours_nor_of_other_precision_than_asked() -> None:
    found = Comparison(16, 1, [GRANET, COMPACT, TORCH, ENGINE, SHORT])
    assert found.best_dense("float32") == ENGINE and found.best_dense() == SHORT
    assert found.ratio(GRANET, "float32") == pytest.approx(4) and found.ratio(GRANET) == pytest.approx(1.5)
    assert found.ratio(ENGINE, "float32") == 1 and found.ratio(TORCH, "float32") == pytest.approx(0.5)
    assert found.rate(GRANET) == pytest.approx(1600)


def test_without_dense_engines_there_is_no_ratio() -> None:
    found = Comparison(1, 1, [GRANET], {"PyTorch": "broken"})
    assert found.best_dense() is None and found.ratio(GRANET) is None
    record = json.loads(json.dumps(found.record()))
    assert record["best_dense"] is None and record["results"][0]["over_best"] is None
    assert record["left_out"] == {"PyTorch": "broken"}
    assert _said(found) == ["without PyTorch: broken"]


def test_a_record_has_the_ratios_and_names() -> None:
    record = json.loads(json.dumps(Comparison(1, 2, [GRANET, ENGINE, SHORT]).record()))
    assert (record["batch"], record["threads"]) == (1, 2)
    assert (record["best_dense_float32"], record["best_dense"]) == ("OpenVINO", "OpenVINO, 16 bit")
    ours = record["results"][0]
    assert (ours["label"], ours["times"]["median"], ours["memory"]) == ("granet", 0.01, None)
    assert (ours["over_best_float32"], ours["over_best"]) == (pytest.approx(4), pytest.approx(1.5))


def test_what_is_said_names_both_opponents_or_the_one_that_is_both() -> None:
    assert _said(Comparison(1, 1, [GRANET, TORCH, ENGINE, SHORT])) == [
        "best dense engine in float32: OpenVINO, 40 ms; granet is 4.00 times as fast",
        "best dense engine in any precision: OpenVINO, 16 bit, 15 ms; granet is 1.50 times as fast",
    ]
    assert _said(Comparison(1, 1, [replace(GRANET, times=Times(0.05, 0.05, 0)), ENGINE])) == [
        "best dense engine in float32 and in any precision: OpenVINO, 40 ms; granet is 0.80 times as fast: zeros do "
        "not pay here"
    ]
    assert _said(Comparison(1, 1, [ENGINE]))[0].endswith("40 ms")

"""Names tell all runs apart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from granet.report.labels import labels
from granet.report.read import ReportedRun, read_run
from granet.training import Recipe

GRANET = Recipe(method_fields={"sparsity": 0.9})


@pytest.mark.parametrize(
    ("recipes", "expected"),
    [
        ([GRANET, GRANET.dense_twin()], ["granet 0.9", "dense"]),
        ([GRANET, replace(GRANET.dense_twin(), seed=1)], ["granet 0.9", "dense"]),  # the method is enough
        ([GRANET, replace(GRANET, seed=1)], ["granet 0.9, seed 0", "granet 0.9, seed 1"]),
        ([GRANET, replace(GRANET, method_fields={"sparsity": 0.8})], ["granet 0.9", "granet 0.8"]),
        ([GRANET, GRANET], ["run0", "run1"]),
        (
            [GRANET, replace(GRANET, method_fields={"sparsity": 0.9, "initial_sparsity": 0.5})],
            ["granet 0.9", "granet 0.9 from 0.5"],
        ),
        (
            [GRANET, replace(GRANET, data="cifar10", model="vgg19")],
            ["granet 0.9, digits_net on digits", "granet 0.9, vgg19 on cifar10"],
        ),
        ([GRANET, replace(GRANET, lr=0.2)], ["granet 0.9, lr 0.1", "granet 0.9, lr 0.2"]),
        (  # the start is told though the seeds alone would tell them apart
            [replace(GRANET, method_fields={"sparsity": 0.9, "initial_sparsity": 0.5}), replace(GRANET, seed=1)],
            ["granet 0.9 from 0.5, seed 0", "granet 0.9, seed 1"],
        ),
        ([GRANET, replace(GRANET, seed=1, observe=("overlap",))], ["granet 0.9, seed 0", "granet 0.9, seed 1"]),
        (
            [GRANET, replace(GRANET, exclude=("classifier.*",))],
            ["granet 0.9, exclude []", "granet 0.9, exclude [classifier.*]"],
        ),
        ([GRANET, replace(GRANET, exclude=("layer",) * 20)], ["run0", "run1"]),
    ],
)
def test_what_differs_is_told(make_run: Callable[..., Path], recipes: list[Recipe], expected: list[str]) -> None:
    runs = [read_run(make_run(f"run{index}", recipe)) for index, recipe in enumerate(recipes)]
    assert labels(runs) == expected


def test_same_names_in_two_folders(make_run: Callable[..., Path]) -> None:
    runs: list[ReportedRun] = [read_run(make_run("a/same")), read_run(make_run("b/same"))]
    assert labels(runs) == [str(run.path) for run in runs]

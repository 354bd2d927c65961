"""Counts and ratios that the GraNet and RigL papers print, recomputed.

The table of layer budgets in the appendix of the GraNet paper (ResNet-50 on ImageNet, 90 %) is
`granet.studies.budgets.printed_rows`: weights and FLOPs of each layer as printed, then the sparsity of each layer in
percent, method by method.
"""

from __future__ import annotations

import pytest
import torch

from granet import RigL
from granet.clock import Clock
from granet.distributions import counts, distribution, kept
from granet.flop_counting import FlopsReport, TrainingFlops
from granet.models import create_model
from granet.sparsifier import UpdateRecord
from granet.studies.budgets import counted, printed_budgets, printed_rows
from granet.weights import find_layers

BUDGETS = [row for row in printed_rows() if row["layer"] not in ("Overall", "Backbone")]


@pytest.fixture(scope="module")
def resnet50() -> FlopsReport:
    return counted("resnet50", 1000, 224)


@pytest.fixture(scope="module")
def as_in_rigl(resnet50: FlopsReport) -> FlopsReport:
    """RigL also counts two operations for each output of a layer, which sparsity does not save."""
    return resnet50.including("normalisation")


@pytest.mark.parametrize(
    ("name", "classes", "side", "macs"),
    [
        ("resnet20", 10, 32, 40_813_184),
        ("vgg19", 10, 32, 398_136_320),
        ("vgg19", 100, 32, 398_182_400),
        ("resnet50_cifar", 10, 32, 1_297_829_888),
        ("resnet50_cifar", 100, 32, 1_298_014_208),
        ("resnet50", 1000, 224, 4_089_184_256),
    ],
)
def test_dense_networks(name: str, classes: int, side: int, macs: int) -> None:
    report = counted(name, classes, side)
    assert report.dense == report.sparse == 2 * macs
    assert report.unknown == ()


def test_resnet50_with_and_without_average_pooling(resnet50: FlopsReport) -> None:
    assert resnet50.dense == 8_178_368_512
    assert resnet50.including("average pooling").dense == 8_178_569_216
    assert resnet50.fixed_by_kind["normalisation"] == 2 * (11_114_984 - 1000)  # every output but the classifier's


def test_four_rows_of_the_printed_table_are_wrong(resnet50: FlopsReport) -> None:
    assert [(row.name, row.weights) for row in resnet50.rows] == [(b["layer"], int(b["params"])) for b in BUDGETS]
    counted = {row.name: row.dense for row in resnet50.rows}
    printed = {budget["layer"]: int(budget["flops"]) for budget in BUDGETS}
    assert {name: (printed[name], counted[name]) for name in counted if printed[name] != counted[name]} == {
        "conv1": (118_013_952, 236_027_904),
        "layer1.0.conv1": (236_027_904, 25_690_112),
        "layer4.0.conv3": (51_380_224, 102_760_448),
        "layer4.2.conv1": (205_520_896, 102_760_448),
    }
    assert sum(printed.values()) == 8_322_072_576  # not the printed total either


@pytest.mark.parametrize(
    ("column", "ratio"),
    [
        ("granet_si0", 0.163),
        ("granet_si05", 0.203),
        ("str", 0.084),
        ("uniform", 0.100),
        ("erk", 0.242),
        ("snfs", 0.398),
        ("vd", 0.194),
        ("gs", 0.146),
    ],
)
def test_test_flops_of_the_printed_budgets(column: str, ratio: float) -> None:
    assert round(printed_budgets()[column].flops, 3) == ratio


@pytest.mark.parametrize(
    ("name", "side", "sparsity", "ratio"),
    [
        ("resnet50", 224, 0.5, 0.714),
        ("resnet50", 224, 0.8, 0.414),
        ("resnet50", 224, 0.9, 0.242),
        ("resnet50", 224, 0.95, 0.122),
        ("vgg19", 32, 0.95, 0.113),
        ("resnet50_cifar", 32, 0.95, 0.116),
        ("resnet20", 32, 0.98, 0.035),
    ],
)
def test_test_flops_of_erk(name: str, side: int, sparsity: float, ratio: float) -> None:
    report = counted(name, 1000 if side == 224 else 10, side)
    layers, active = erk(report, sparsity)
    assert round(report.with_active(dict(zip(layers, active, strict=True))).ratio, 3) == ratio


def erk(report: FlopsReport, sparsity: float) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names and active weights of the layers."""
    shapes = [row.shape for row in report.rows]
    size = sum(row.weights for row in report.rows)
    total = kept(size, sparsity)
    active = counts(shapes, distribution("erk")(shapes, total / size), total)
    return tuple(str(row.parameter) for row in report.rows), tuple(active)


def record(step: int, active: tuple[int, ...]) -> UpdateRecord:
    return UpdateRecord(step, target=0.0, achieved=0.0, pruned=0, regrown=0, skipped=False, active=active)


@pytest.mark.parametrize(("sparsity", "ratio", "five_times"), [(0.8, 0.42, 2.09), (0.9, 0.25, 1.23)])
def test_training_flops_of_rigl(as_in_rigl: FlopsReport, sparsity: float, ratio: float, five_times: float) -> None:
    """The appendix: (3 f_S dT + 2 f_S + f_D) / (dT + 1), one dense gradient after every dT = 100 ordinary steps."""
    layers, active = erk(as_in_rigl, sparsity)
    training = TrainingFlops(as_in_rigl, layers, active, "on updates")
    cost = training.after(5 * 101, [record(step, active) for step in range(101, 506, 101)])
    f_sparse, f_dense = training.forward(active), as_in_rigl.dense
    assert cost.flops == 5 * (3 * f_sparse * 100 + 2 * f_sparse + f_dense)
    assert round(cost.ratio, 2) == ratio
    assert round(cost.relative_to(101), 2) == five_times
    # As it is run: an update every 100th step, until 75 % of training.
    method = RigL(sparsity)
    steps = method.updates(Clock(0, total_steps=32_000))
    assert (len(steps), method.dense_gradient) == (239, "on updates")
    assert round(training.after(32_000, [record(step, active) for step in steps]).ratio, 2) == ratio


@pytest.mark.parametrize(("sparsity", "snfs", "static"), [(0.8, 0.61, 0.42), (0.9, 0.50, 0.24)])
def test_training_flops_of_snfs_and_of_a_static_mask(
    as_in_rigl: FlopsReport, sparsity: float, snfs: float, static: float
) -> None:
    layers, active = erk(as_in_rigl, sparsity)
    assert round(TrainingFlops(as_in_rigl, layers, active, "always").after(7).ratio, 2) == snfs
    assert round(TrainingFlops(as_in_rigl, layers, active, "never").after(7).ratio, 2) == static


def gradual(report: FlopsReport, sparsity: float) -> tuple[tuple[int, ...], list[UpdateRecord]]:
    """GMP as RigL counts it: 33 points of a run of 32,000 steps, pruned from 10,000 to 25,000 along the cubic schedule,
    uniformly but for the first layer, which is dense, and the last, which keeps at least 20 %."""

    def active(sparsity: float) -> tuple[int, ...]:
        special = {"conv1": 0.0, "fc": min(sparsity, 0.8)}
        return tuple(round(row.weights * (1 - special.get(row.name, sparsity))) for row in report.rows)

    def target(step: int) -> float:
        progress = min(max((step - 10_000) / 15_000, 0), 1)
        return sparsity * (1 - (1 - progress) ** 3)

    return active(0), [record(point, active(target(1000 * point))) for point in range(1, 33)]


@pytest.mark.parametrize(("sparsity", "ratio"), [(0.8, 0.56), (0.9, 0.51)])
def test_training_flops_of_gmp(as_in_rigl: FlopsReport, sparsity: float, ratio: float) -> None:
    layers = tuple(str(row.parameter) for row in as_in_rigl.rows)
    start, history = gradual(as_in_rigl, sparsity)
    cost = TrainingFlops(as_in_rigl, layers, start, "never").after(33, history)
    assert round(cost.ratio, 2) == ratio


def test_training_flops_of_dpf(as_in_rigl: FlopsReport) -> None:
    """A dense gradient at every step of GMP's schedule."""
    layers = tuple(str(row.parameter) for row in as_in_rigl.rows)
    start, history = gradual(as_in_rigl, 0.8)
    assert round(TrainingFlops(as_in_rigl, layers, start, "always").after(33, history).ratio, 2) == 0.71


def test_the_layers_are_those_that_are_sparsified(resnet50: FlopsReport) -> None:
    with torch.device("meta"):
        layers = find_layers(create_model("resnet50", num_classes=1000))
    assert {row.parameter: row.shape for row in resnet50.rows} == {
        layer.name: tuple(layer.weight.shape) for layer in layers
    }

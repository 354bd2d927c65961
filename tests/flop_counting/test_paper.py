"""Counts and ratios that the GraNet paper prints, recomputed.

The table of layer budgets in the appendix of the GraNet paper (ResNet-50 on ImageNet, 90 %) is
`paper.budgets.printed_rows`: weights and FLOPs of each layer as printed, then the sparsity of each layer in
percent, method by method.
"""

from __future__ import annotations

import pytest
import torch

from granet.distributions import counts, distribution, kept
from granet.flop_counting import FlopsReport
from granet.models import create_model
from granet.weights import find_layers
from paper.budgets import counted, printed_budgets, printed_rows

BUDGETS = [row for row in printed_rows() if row["layer"] not in ("Overall", "Backbone")]


@pytest.fixture(scope="module")
def resnet50() -> FlopsReport:
    return counted("resnet50", 1000, 224)


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


def test_the_layers_are_those_that_are_sparsified(resnet50: FlopsReport) -> None:
    with torch.device("meta"):
        layers = find_layers(create_model("resnet50", num_classes=1000))
    assert {row.parameter: row.shape for row in resnet50.rows} == {
        layer.name: tuple(layer.weight.shape) for layer in layers
    }

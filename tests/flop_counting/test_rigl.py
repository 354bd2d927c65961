"""Counts and ratios that RigL's authors print (Evci et al. 2020, arXiv 1911.11134), recomputed by their conventions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest

from granet import RigL
from granet.clock import Clock
from granet.distributions import counts, distribution, kept
from granet.flop_counting import FlopsReport, TrainingFlops
from granet.flop_counting.report import FixedFlops
from granet.sparsifier import UpdateRecord
from paper.budgets import counted


@pytest.fixture(scope="module")
def as_in_rigl() -> FlopsReport:
    """ResNet-50 as their counter has it.

    Each output of a layer is one operation more, which sparsity does not save: n products have n - 1 sums, then come a
    bias and a ReLU. And the first layer has 115 x 115 outputs instead of 112 x 112: its input is padded by a layer of
    its own, and the counter pads it again.
    """
    report = counted("resnet50", 1000, 224)
    rows = [
        dataclasses.replace(row, dense=row.dense // 112**2 * 115**2) if row.name == "conv1" else row
        for row in report.rows
    ]
    outputs = [FixedFlops(row.name, "activation", row.dense // (2 * row.weights) * row.shape[0]) for row in rows]
    return FlopsReport(tuple(rows), tuple(outputs)).including("activation")


def layers_of(report: FlopsReport) -> tuple[str, ...]:
    return tuple(str(row.parameter) for row in report.rows)


def erk(report: FlopsReport, sparsity: float, dense: Sequence[str] = ()) -> tuple[int, ...]:
    """Active weights of the layers; those in ``dense`` are not among the ones that share."""
    rows = [row for row in report.rows if row.name not in dense]
    size = sum(row.weights for row in rows)
    total = kept(size, sparsity)
    active = counts([row.shape for row in rows], distribution("erk")([row.shape for row in rows], total / size), total)
    shared = dict(zip((row.name for row in rows), active, strict=True))
    return tuple(shared.get(row.name, row.weights) for row in report.rows)


def uniform(report: FlopsReport, sparsity: float) -> tuple[int, ...]:
    """The first layer is dense."""
    return tuple(row.weights if row.name == "conv1" else kept(row.weights, sparsity) for row in report.rows)


def record(step: int, active: tuple[int, ...]) -> UpdateRecord:
    return UpdateRecord(step, target=0.0, achieved=0.0, pruned=0, regrown=0, skipped=False, active=active)


# Their table of training for five times as long: sparsity, FLOPs of the training and of a forward pass over dense ones.
FIVE_TIMES = {
    "erk": [(0.8, 2.09, 0.42), (0.9, 1.23, 0.24), (0.95, 0.63, 0.12), (0.965, 0.45, 0.09), (0.99, 0.29, 0.05)],
    "uniform": [(0.8, 1.14, 0.23), (0.9, 0.66, 0.13), (0.95, 0.42, 0.08), (0.965, 0.34, 0.07)],
}


@pytest.mark.parametrize(
    ("shares", "sparsity", "five_times", "inference"),
    [(shares, *figures) for shares, rows in FIVE_TIMES.items() for figures in rows],
)
def test_the_authors_table(
    as_in_rigl: FlopsReport, shares: str, sparsity: float, five_times: float, inference: float
) -> None:
    """At 99 % the first layer is dense under ERK too."""
    if shares == "uniform":
        active = uniform(as_in_rigl, sparsity)
    else:
        active = erk(as_in_rigl, sparsity, ("conv1",) if sparsity == 0.99 else ())
    training = TrainingFlops(as_in_rigl, layers_of(as_in_rigl), active, "on updates")
    cost = training.after(5 * 101, [record(step, active) for step in range(101, 506, 101)])
    assert round(cost.relative_to(101), 2) == five_times
    assert round(training.forward(active) / as_in_rigl.dense, 2) == inference


@pytest.mark.parametrize(("sparsity", "ratio", "five_times"), [(0.8, 0.42, 2.09), (0.9, 0.25, 1.23)])
def test_training_flops_of_rigl(as_in_rigl: FlopsReport, sparsity: float, ratio: float, five_times: float) -> None:
    """The appendix: (3 f_S dT + 2 f_S + f_D) / (dT + 1), one dense gradient after every dT = 100 ordinary steps."""
    layers, active = layers_of(as_in_rigl), erk(as_in_rigl, sparsity)
    training = TrainingFlops(as_in_rigl, layers, active, "on updates")
    cost = training.after(5 * 101, [record(step, active) for step in range(101, 506, 101)])
    f_sparse, f_dense = training.forward(active), as_in_rigl.dense
    assert cost.flops == 5 * (3 * f_sparse * 100 + 2 * f_sparse + f_dense)
    assert round(cost.ratio, 2) == ratio
    assert round(cost.relative_to(101), 2) == five_times
    # As it is run: an update every 100th step, until 75 % of training.
    method = RigL(sparsity=sparsity)
    steps = method.updates(Clock(0, total_steps=32_000))
    assert (len(steps), method.dense_gradient) == (239, "on updates")
    assert round(training.after(32_000, [record(step, active) for step in steps]).ratio, 2) == ratio


@pytest.mark.parametrize(("sparsity", "snfs", "static"), [(0.8, 0.61, 0.42), (0.9, 0.50, 0.24)])
def test_training_flops_of_snfs_and_of_a_static_mask(
    as_in_rigl: FlopsReport, sparsity: float, snfs: float, static: float
) -> None:
    layers, active = layers_of(as_in_rigl), erk(as_in_rigl, sparsity)
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
    layers = layers_of(as_in_rigl)
    start, history = gradual(as_in_rigl, sparsity)
    cost = TrainingFlops(as_in_rigl, layers, start, "never").after(33, history)
    assert round(cost.ratio, 2) == ratio


def test_training_flops_of_dpf(as_in_rigl: FlopsReport) -> None:
    """A dense gradient at every step of GMP's schedule."""
    layers = layers_of(as_in_rigl)
    start, history = gradual(as_in_rigl, 0.8)
    assert round(TrainingFlops(as_in_rigl, layers, start, "always").after(33, history).ratio, 2) == 0.71


# MobileNet-v1, whose counts the authors recorded in a notebook.


def mobilenet() -> list[tuple[str, tuple[int, int, int, int], int]]:
    """Kind, shape and positions of each layer; layers of stride 2 are padded twice, as in ResNet-50."""
    layers, side, inputs = [("first", (32, 3, 3, 3), 113**2)], 112, 32
    for outputs, stride in [
        *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
        *[(512, 1)] * 5,
        *((1024, 2), (1024, 1)),
    ]:
        read = side if stride == 1 else math.ceil((side + 1) / 2)
        side //= stride
        layers += [("depthwise", (inputs, 1, 3, 3), read**2), ("pointwise", (outputs, inputs, 1, 1), side**2)]
        inputs = outputs
    return [*layers, ("last", (1000, 1024, 1, 1), 1)]


def million_flops(densities: Sequence[float]) -> float:
    """Of a depthwise layer the counter sees one output at each position, whatever the number of channels."""
    total = 0.0
    for (kind, shape, positions), density in zip(mobilenet(), densities, strict=True):
        total += positions * (2 * math.prod(shape) * density + (1 if kind == "depthwise" else shape[0]))
    return round(total / 1e6, 3)


def test_the_recorded_count_of_a_dense_mobilenet() -> None:
    assert million_flops([1.0] * len(mobilenet())) == 1141.544


@pytest.mark.parametrize(
    ("sparsity", "erk", "uniform"),
    [(0.75, 599.144, 330.769), (0.85, 439.152, 222.666), (0.9, 334.134, 168.614), (0.95, 205.281, 114.563)],
)
def test_the_recorded_counts_of_sparse_mobilenets(sparsity: float, erk: float, uniform: float) -> None:
    """Depthwise layers are dense; the zeros that ERK shares out were rounded up, layer by layer."""
    layers = mobilenet()
    shapes = [shape for kind, shape, _ in layers if kind != "depthwise"]
    sizes = list(map(math.prod, shapes))
    left = sum(size - math.ceil(sparsity * size) for size in sizes)
    shares = iter(distribution("erk")(shapes, left / sum(sizes)))
    assert million_flops([1.0 if kind == "depthwise" else next(shares) for kind, _, _ in layers]) == erk
    dense = ("depthwise", "first")
    assert million_flops([1.0 if kind in dense else 1 - sparsity for kind, _, _ in layers]) == uniform

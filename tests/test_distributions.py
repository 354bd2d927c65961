"""Budgets are shared as published, and counted exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from examples import examples
from granet.distributions import ErdosRenyi, Uniform, counts, distribution, kept, least
from granet.models import create_model
from granet.weights import find_layers
from refusals import refused

ERK = distribution("erk")
Shape = tuple[int, ...]


@cache
def model_shapes(name: str, classes: int) -> dict[str, Shape]:
    with torch.device("meta"):
        return {layer.name: tuple(layer.weight.shape) for layer in find_layers(create_model(name, num_classes=classes))}


def resnet50() -> dict[str, Shape]:
    return model_shapes("resnet50", 1000)


def published_erk_sparsity(name: str) -> float:
    """Percents of ResNet-50 at 0.9, for all 54 layers."""
    if name in ("conv1.weight", "fc.weight", "layer1.0.conv1.weight"):
        return {"conv1.weight": 58.00, "fc.weight": 92.74, "layer1.0.conv1.weight": 0.0}[name]
    stage, block, kind = name.split(".")[:3]
    if kind == "conv2":
        return {"layer1": 82.27, "layer2": 91.33, "layer3": 95.72, "layer4": 97.87}[stage]
    if block == "0" and kind == "conv1":
        return {"layer2": 42.53, "layer3": 71.34, "layer4": 85.69}[stage]
    if kind == "downsample":
        return {"layer1": 4.12, "layer2": 71.34, "layer3": 85.69, "layer4": 92.85}[stage]
    return {"layer1": 4.12, "layer2": 52.21, "layer3": 76.14, "layer4": 88.08}[stage]


def exact_erdos_renyi(shapes: list[Shape], density: Fraction, dimensions: int | None) -> list[Fraction]:
    """RigL's epsilon solve in exact arithmetic; ``dimensions`` of each shape enter the raw probability."""
    raw = [Fraction(sum(shape[:dimensions]), math.prod(shape[:dimensions])) for shape in shapes]
    sizes = [math.prod(shape) for shape in shapes]
    dense: set[int] = set()
    while True:
        rest = [i for i in range(len(shapes)) if i not in dense]
        if not rest:
            return [Fraction(1)] * len(shapes)
        budget = sum(sizes[i] * density for i in rest) - sum(sizes[i] * (1 - density) for i in dense)
        epsilon = budget / sum(raw[i] * sizes[i] for i in rest)
        largest = max(raw[i] for i in rest)
        if epsilon * largest <= 1:
            return [Fraction(1) if i in dense else epsilon * raw[i] for i in range(len(shapes))]
        dense |= {i for i in rest if raw[i] == largest}


# The published numbers.


def test_erk_at_90_percent_on_resnet50_is_the_published_column() -> None:
    names, shapes = list(resnet50()), list(resnet50().values())
    assert len(shapes) == 54
    sparsities = {name: 100 * (1 - d) for name, d in zip(names, ERK(shapes, 0.1), strict=True)}
    assert {n: abs(round(s, 2)) for n, s in sparsities.items()} == {n: published_erk_sparsity(n) for n in names}


def test_erk_at_90_percent_on_resnet50_has_exactly_90_percent_zeros() -> None:
    shapes = list(resnet50().values())
    assert sum(math.prod(shape) * d for shape, d in zip(shapes, ERK(shapes, 0.1), strict=True)) == pytest.approx(
        2_550_291.2, abs=1e-3
    )
    total = kept(25_502_912, 0.9)
    assert total == 2_550_291
    shared = counts(shapes, ERK(shapes, total / 25_502_912), total, floor=1)
    assert sum(shared) == total
    for shape, count, density in zip(shapes, shared, ERK(shapes, 0.1), strict=True):
        assert count == pytest.approx(math.prod(shape) * density, abs=1)


def share_of_flops(densities: dict[str, float]) -> float:
    """Multiply-adds of the sparse ResNet-50 over those of the dense one, at 224 x 224."""
    sides = {"conv1": 112, "layer1": 56, "layer2": 28, "layer3": 14, "layer4": 7, "fc": 1}
    work = {}
    for name, shape in resnet50().items():
        stage, *inner = name.split(".")
        strided = inner[:2] == ["0", "conv1"] and stage != "layer1"  # it runs before the block's stride
        work[name] = math.prod(shape) * (sides[stage] * (2 if strided else 1)) ** 2
    assert sum(work.values()) == 4_089_184_256
    return sum(work[name] * density for name, density in densities.items()) / sum(work.values())


@pytest.mark.parametrize(
    ("density", "dense", "flops"),
    [(0.5, 32, 0.714), (0.2, 8, 0.414), (0.1, 1, 0.242), (0.05, 0, 0.122), (0.035, 0, 0.085)],
)
def test_erk_on_resnet50_makes_as_many_layers_dense_as_published(density: float, dense: int, flops: float) -> None:
    densities = dict(zip(resnet50(), ERK(list(resnet50().values()), density), strict=True))
    assert sum(d == 1 for d in densities.values()) == dense
    assert round(share_of_flops(densities), 3) == flops
    if dense == 1:
        assert densities["layer1.0.conv1.weight"] == 1
    if density == 0.5:
        known = {"layer4.0.conv2": 0.13270, "layer3.0.conv2": 0.26694, "layer2.0.conv2": 0.54006, "fc": 0.45237}
        assert {name: round(densities[f"{name}.weight"], 5) for name in known} == known


# Numerical soundness.

PAPER = [("resnet20", 10), ("vgg19", 10), ("vgg19", 100), ("resnet50_cifar", 10), ("resnet50_cifar", 100),
         ("resnet50", 1000)]  # fmt: skip


@pytest.mark.parametrize("name", ["erk", "er", "uniform"])
@pytest.mark.parametrize(("model", "classes"), PAPER)
def test_density_one_is_dense_on_the_papers_networks(name: str, model: str, classes: int) -> None:
    shapes = list(model_shapes(model, classes).values())
    sizes = [math.prod(shape) for shape in shapes]
    assert distribution(name)(shapes, 1.0) == pytest.approx([1.0] * len(shapes), abs=1e-12)
    assert counts(shapes, distribution(name)(shapes, 1.0), sum(sizes), floor=1) == sizes


shape_lists = st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=4).map(tuple), min_size=1, max_size=8)


@settings(max_examples=examples(200))
@given(shape_lists, st.booleans())
def test_density_one_is_dense_on_any_shapes(shapes: list[Shape], kernel: bool) -> None:
    densities = ErdosRenyi(kernel)(shapes, 1.0)
    sizes = [math.prod(shape) for shape in shapes]
    assert densities == pytest.approx([1.0] * len(shapes), abs=1e-9)
    assert max(densities) <= 1
    assert counts(shapes, densities, sum(sizes)) == sizes


@settings(max_examples=examples(200))
@given(shape_lists, st.booleans(), st.fractions(Fraction(1, 1000), 1))
def test_erdos_renyi_is_the_exact_solution(shapes: list[Shape], kernel: bool, density: Fraction) -> None:
    densities = ErdosRenyi(kernel)(shapes, float(density))
    expected = exact_erdos_renyi(shapes, density, None if kernel else 2)
    assert densities == pytest.approx([float(d) for d in expected], rel=1e-6)
    assert all(0 < d <= 1 for d in densities)
    total = sum(math.prod(shape) * d for shape, d in zip(shapes, densities, strict=True))
    assert total == pytest.approx(float(density) * sum(map(math.prod, shapes)), rel=1e-9)


def test_er_ignores_the_kernel_and_erk_does_not() -> None:
    shapes = [(20, 30, 3, 3), (20, 30, 1, 1), (50, 40)]
    er, erk = distribution("er")(shapes, 0.1), ERK(shapes, 0.1)
    assert er[0] == pytest.approx(er[1])
    assert er[0] / er[2] == pytest.approx((50 / 600) / (90 / 2000))
    assert erk[0] / erk[1] == pytest.approx((56 / 5400) / (52 / 600))


@pytest.mark.parametrize("name", ["ERK", ["erk"], None])
def test_unknown_distribution(name: Any) -> None:
    with refused("distribution", name, "uniform, er, erk"):
        distribution(name)


# Uniform and its exemptions.


def test_uniform_is_uniform() -> None:
    assert distribution("uniform")([(3, 4), (5, 5, 5)], 0.3) == pytest.approx([0.3, 0.3])


def test_the_last_layer_is_held_only_when_it_would_be_thinner() -> None:
    shapes = [(1000,), (100,)]
    assert Uniform(last_density=0.2)(shapes, 0.25) == pytest.approx([0.25, 0.25])
    assert Uniform(last_density=0.2)(shapes, 0.1) == pytest.approx([0.09, 0.2])


def test_a_dense_first_layer_is_paid_for_by_the_others() -> None:
    assert Uniform(dense_first=True)([(100,), (500,), (400,)], 0.19) == pytest.approx([1.0, 0.1, 0.1])


@settings(max_examples=examples(200))
@given(shape_lists, st.floats(0.05, 1), st.floats(0, 0.5), st.booleans())
def test_exemptions_conserve_the_total(shapes: list[Shape], density: float, last: float, first: bool) -> None:
    assume(len(shapes) > 1)
    sizes = [math.prod(shape) for shape in shapes]
    budget = sum(sizes) * density
    plain = (budget - sizes[0]) / sum(sizes[1:]) if first else density  # what the last layer gets if it is not held
    assume(abs(plain - last) > 1e-6)
    held = plain < last
    try:
        densities = Uniform(last, first)(shapes, density)
    except ValueError:
        spent = first * sizes[0] + held * last * sizes[-1]
        assert budget <= spent * (1 + 1e-9) or len(sizes) == first + held
        return
    assert sum(size * d for size, d in zip(sizes, densities, strict=True)) == pytest.approx(budget, rel=1e-9)
    assert all(0 < d <= 1 + 1e-9 for d in densities)
    assert densities[0] == 1 or not first
    assert densities[-1] == pytest.approx(last if held else plain)
    others = densities[first : len(sizes) - held]
    assert others == pytest.approx([others[0]] * len(others))


def test_the_last_layer_is_held_when_the_dense_first_one_makes_it_too_thin() -> None:
    """The whole may be denser than 0.2 while what the first layer leaves to the others is not."""
    densities = Uniform(last_density=0.2, dense_first=True)([(100,), (800,), (100,)], 0.25)
    assert densities == pytest.approx([1.0, 130 / 800, 0.2])


def test_a_layer_that_is_first_and_last_is_exempt_from_nothing() -> None:
    assert Uniform(last_density=0.2, dense_first=True)([(100,)], 0.1) == pytest.approx([0.1])


def test_a_budget_below_the_exemptions_is_refused() -> None:
    with refused("last_density=0.0, dense_first", True, "0.1"):
        Uniform(dense_first=True)([(50,), (50,)], 0.1)
    with refused("last_density=0.0, dense_first", True, "0.5"):
        Uniform(dense_first=True)([(50,), (50,)], 0.5)  # nothing is left for the other layer


# Whole numbers.


@pytest.mark.parametrize(
    ("size", "sparsity", "left"), [(10, 0.9, 1), (25_502_912, 0.9, 2_550_291), (3, 0.0, 3), (7, 0.5, 3), (8, 0.999, 0)]
)
def test_kept_rounds_the_zeros(size: int, sparsity: float, left: int) -> None:
    assert kept(size, sparsity) in (left, left + (size * sparsity % 1 == 0.5))
    assert abs((size - kept(size, sparsity)) - size * sparsity) <= 0.5


def test_kept_of_a_sparsity_in_single_precision_is_exact() -> None:
    assert kept(25_502_912, np.float32(0.91)) == 2_295_261  # its zeros, 23,207,650.6, are between two such numbers


@settings(max_examples=examples(300))
@given(st.data(), st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8), st.integers(0, 60))
def test_counts_add_up_whatever_the_densities_and_floors(data, shapes: list[Shape], floor: int) -> None:
    sizes = [math.prod(shape) for shape in shapes]
    floors = [min(floor, size) for size in sizes]
    total = data.draw(st.integers(sum(floors), sum(sizes)))
    densities = data.draw(st.lists(st.floats(0, 1), min_size=len(shapes), max_size=len(shapes)))
    shared = counts(shapes, densities, total, floor)
    assert sum(shared) == total
    assert all(low <= count <= size for low, count, size in zip(floors, shared, sizes, strict=True))


@settings(max_examples=examples(200))
@given(shape_lists, st.floats(0.02, 1), st.sampled_from(["uniform", "er", "erk"]))
def test_counts_are_within_one_of_the_densities(shapes: list[Shape], density: float, name: str) -> None:
    sizes = [math.prod(shape) for shape in shapes]
    total = kept(sum(sizes), 1 - density)
    assume(total > 0)
    densities = distribution(name)(shapes, total / sum(sizes))
    shared = counts(shapes, densities, total)
    assert sum(shared) == total
    for count, size, d in zip(shared, sizes, densities, strict=True):
        assert abs(count - size * d) < 1 + 1e-6


def test_the_largest_remainders_are_rounded_up() -> None:
    assert counts([(10,), (10,), (10,)], [0.19, 0.12, 0.19], 5) == [2, 1, 2]
    assert counts([(10,), (10,)], [0.04, 0.06], 1) == [0, 1]


def test_a_layer_below_its_floor_is_raised_and_another_pays() -> None:
    assert counts([(10,), (1000,)], [0.01, 0.1], 100, floor=5) == [5, 95]
    assert counts([(2,), (1000,)], [0.01, 0.1], 100, floor=5) == [2, 98]
    assert counts([(10,)] * 3, [0.05, 0.31, 0.39], 7, floor=2) == [2, 2, 3]  # the one nearest above its share pays


@settings(max_examples=examples(300))
@given(st.data(), st.lists(st.integers(1, 100).map(lambda n: (n,)), min_size=2, max_size=8), st.integers(0, 3))
def test_floors_are_not_paid_for_by_the_dense_first_layer(data, shapes: list[Shape], floor: int) -> None:
    first, *others = (shape[0] for shape in shapes)
    least = max(1, sum(min(floor, size) for size in others))
    total = first + data.draw(st.integers(least, sum(others)))
    densities = Uniform(dense_first=True)(shapes, total / (first + sum(others)))
    shared = counts(shapes, densities, total, floor)
    assert shared[0] == first
    assert sum(shared) == total


def test_the_dense_first_layer_stays_dense_beside_tiny_layers() -> None:
    shapes = [(8,), (2,), (5,), (149,)]
    assert counts(shapes, Uniform(dense_first=True)(shapes, 27 / 164), 27, floor=1) == [8, 1, 1, 17]


@settings(max_examples=examples(200))
@given(st.data(), st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=5), st.integers(0, 12))
def test_whole_quanta_are_as_near_to_the_total_as_one_more_or_less_brings_them(data, units, floor: int) -> None:
    shapes, quanta = [(number * quantum,) for number, quantum in units], [quantum for _, quantum in units]
    floors = [least(size, floor, quantum) for (size,), quantum in zip(shapes, quanta, strict=True)]
    total = data.draw(st.integers(sum(floors), sum(size for (size,) in shapes)))
    densities = data.draw(st.lists(st.floats(0, 1), min_size=len(shapes), max_size=len(shapes)))
    shared = counts(shapes, densities, total, floor, quanta)
    away = total - sum(shared)
    for count, quantum, low, (size,) in zip(shared, quanta, floors, shapes, strict=True):
        assert count % quantum == 0
        assert low <= count <= size
        assert count + quantum > size or abs(away - quantum) >= abs(away)
        assert count - quantum < low or abs(away + quantum) >= abs(away)


@pytest.mark.parametrize("total", [1, 31])
def test_a_total_that_cannot_be_is_refused(total: int) -> None:
    with refused("total", total, "6 (floor=3 per layer) and 30"):
        counts([(10,), (20,)], [0.5, 0.5], total, floor=3)

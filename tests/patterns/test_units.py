"""Figures of units against the same ones by hand, whatever way a weight is stored."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from granet.patterns import SINGLE, Units, units_of
from granet.weights import Orientation, SparseLayer

SHAPES = {"linear": ((8, 12), 0), "convolution": ((8, 4, 3, 3), 0), "transposed": ((8, 6, 2, 2), 2)}


def layer_of(kind: str, layout: torch.memory_format = torch.contiguous_format) -> SparseLayer:
    shape, groups = SHAPES[kind]
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    weight = weight.to(memory_format=layout) if weight.ndim == 4 else weight
    orientation = Orientation(1, 0, groups=groups) if groups else Orientation()
    return SparseLayer.of("weight", nn.Parameter(weight), orientation=orientation)


def numbered(layer: SparseLayer, pattern: str) -> Tensor:
    """The number of each weight's unit, in the shape of the weight."""
    first, second, *kernel = layer.weight.shape
    groups = layer.identity.orientation.groups if layer.identity.orientation.out else 0
    outputs = groups * second if groups else first
    columns = layer.numel // outputs
    row, column = torch.arange(outputs)[:, None].expand(-1, columns), torch.arange(columns).expand(outputs, -1)
    number = row if pattern == "filter" else row // 4 * columns + column
    if not groups:
        return number.reshape(layer.weight.shape)
    neurons = number.reshape(groups, second, first // groups, *kernel)
    return neurons.transpose(1, 2).reshape(layer.weight.shape)


FIGURES = {
    "mean": lambda v: v.mean(),
    "size": lambda v: v.square().mean().sqrt(),
    "log_mean": lambda v: v.exp().mean().log(),
}


@pytest.mark.parametrize("pattern", ["filter", "4x1"])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_figure_is_that_of_all_weights_of_the_unit(figure: str, kind: str, pattern: str, layout) -> None:
    layer = layer_of(kind, layout)
    values, numbers = layer.weight.detach(), numbered(layer, pattern)
    expected = torch.empty_like(values)
    for unit in numbers.unique():
        expected[numbers == unit] = FIGURES[figure](values[numbers == unit].double()).float()
    found = getattr(units_of(pattern), figure)(layer, values)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    assert all(len(found[numbers == unit].unique()) == 1 for unit in numbers.unique())


def test_the_mean_exponential_of_far_numbers_is_finite() -> None:
    layer = layer_of("linear")
    for value in (-2000.0, 2000.0):
        assert units_of("filter").log_mean(layer, torch.full((8, 12), value)).tolist() == [[value] * 12] * 8
    none = torch.full((8, 12), -torch.inf)
    assert units_of("filter").log_mean(layer, none).tolist() == none.tolist()


@pytest.mark.parametrize("pattern", ["weight", "2:4", "fan-in"])
def test_single_weights_are_units_of_their_own(pattern: str) -> None:
    layer, units = layer_of("convolution"), units_of(pattern)
    values = layer.weight.detach()
    assert units == SINGLE
    assert units.mean(layer, values) is units.log_mean(layer, values) is values
    assert torch.equal(units.size(layer, values), values.abs())
    assert torch.equal(units.shrink(layer, values, 0.5), nn.functional.softshrink(values, 0.5))


@pytest.mark.parametrize("units", [units_of("filter"), units_of("4x1"), SINGLE])
def test_shrinking_is_the_proximity_operator_of_the_group_lasso(units: Units) -> None:
    """v = prox(x) exactly if no small change of v makes t * sum sqrt(n) |v_u| + |v - x|^2 / 2 smaller."""
    layer = layer_of("linear")
    x = layer.weight.detach().double()
    numbers = numbered(layer, units.blocks.text) if units.blocks else torch.arange(x.numel()).view(x.shape)
    sizes = numbers.flatten().bincount()

    def objective(v: Tensor) -> float:
        squares = torch.zeros(len(sizes), dtype=v.dtype).index_add(0, numbers.flatten(), v.square().flatten())
        return float(0.9 * (squares * sizes).sqrt().sum() + (v - x).square().sum() / 2)

    found = units.shrink(layer, x, 0.9)
    least = objective(found)
    zero = [bool((found[numbers == unit] == 0).all()) for unit in numbers.unique()]
    assert any(zero) and not all(zero)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        change = torch.randn(x.shape, generator=generator, dtype=x.dtype) * 1e-3
        assert objective(found + change) > least
        assert objective(found + change * (found != 0)) > least

"""Output neurons first, whatever way a weight is stored, and back again."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from granet.weights import Orientation


@pytest.mark.parametrize(
    ("orientation", "shape", "neurons"),
    [
        (Orientation(), (6, 4), (6, 4)),
        (Orientation(), (6, 4, 3, 3), (6, 4, 3, 3)),
        (Orientation(groups=2), (6, 4, 3), (6, 4, 3)),
        (Orientation(1, 0), (4, 6), (6, 4)),
        (Orientation(1, 0, groups=2), (4, 6, 3), (12, 2, 3)),
        (Orientation(0, 2), (6, 3, 4), (6, 4, 3)),
        (Orientation(2, 1, experts=0), (5, 4, 6), (30, 4)),
        (Orientation(1, 2, experts=0), (5, 6, 4), (30, 4)),
        (Orientation(0, 1, experts=2), (6, 4, 5), (30, 4)),
        (Orientation(parts=3), (6, 4), (6, 4)),
    ],
)
def test_neurons_are_rows_and_go_back(
    orientation: Orientation, shape: tuple[int, ...], neurons: tuple[int, ...]
) -> None:
    assert orientation.misfit(shape) is None
    weight = torch.arange(torch.Size(shape).numel()).view(shape)
    rows = orientation.neurons(weight)
    assert tuple(rows.shape) == neurons == orientation.neuron_shape(shape)
    assert torch.equal(orientation.stored(rows, shape), weight)


def test_a_transposed_convolution_in_groups() -> None:
    """A row holds exactly the weights of one output channel."""
    layer = nn.ConvTranspose1d(4, 6, 3, groups=2, bias=False)
    rows = Orientation(1, 0, groups=2).neurons(layer.weight.detach())
    signal = torch.randn(1, 4, 5)
    for channel in range(6):
        only = torch.zeros_like(rows)
        only[channel] = rows[channel]
        weight = Orientation(1, 0, groups=2).stored(only, layer.weight.shape)
        out = functional.conv_transpose1d(signal, weight, groups=2)
        assert torch.equal(out[0, channel], layer(signal)[0, channel])
        assert out[0].abs().sum((1,)).count_nonzero() == 1


def test_experts_and_parts_are_matrices_of_their_own() -> None:
    assert Orientation(2, 1, experts=0).matrices((5, 4, 6)) == (5, (6, 4))
    assert Orientation(parts=3).matrices((12, 4)) == (3, (4, 4))
    assert Orientation(1, 0, groups=2).matrices((4, 3, 3)) == (1, (6, 2, 3))


@pytest.mark.parametrize(
    ("orientation", "shape", "says"),
    [
        (Orientation(0, 2), (4, 3), "out=0, inputs=2 must be different dimensions from 0 to 1"),
        (Orientation(1, 1), (4, 3), "out=1, inputs=1 must be different"),
        (Orientation(-1, 0), (4, 3), "out=-1, inputs=0 must be different"),
        (Orientation(experts=0), (4, 3, 2), "out=0, inputs=1, experts=0 must be different"),
        (Orientation(parts=3), (4, 3), "parts=3 must divide the 4 of dimension 0"),
        (Orientation(1, 0, groups=0), (4, 3), "groups=0 must divide the 4 of dimension 0"),
    ],
)
def test_axes_that_do_not_fit(orientation: Orientation, shape: tuple[int, ...], says: str) -> None:
    assert says in (orientation.misfit(shape) or "")

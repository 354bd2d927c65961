"""Nets of a few weights, for all tests of the moves that methods are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from granet.distributions import distribution
from granet.net import SparseNet
from granet.weights import SparseLayer

YES = torch.tensor(True)
SHAPES = [(8, 3, 3, 3), (10, 8), (4, 10)]


def make(shapes: Sequence[tuple[int, ...]] = SHAPES, *, seed: int = 0, floor: int = 1) -> SparseNet:
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for index, shape in enumerate(shapes):
        layer = SparseLayer.of(f"{index}.weight", nn.Parameter(torch.randn(shape, generator=generator)), index, seed)
        layer.gradient = torch.randn(shape, generator=generator)
        layers.append(layer)
    return SparseNet(layers, floor)


def begin(net: SparseNet, draw: int = 1, accept: Tensor = YES) -> SparseNet:
    net.open(draw, net.layers, accept)
    return net


def masks(net: SparseNet) -> list[Tensor]:
    return [layer.mask.clone() for layer in net.layers]


def sprouted(sparsity: float = 0.5, **options: int) -> SparseNet:
    net = begin(make(**options), draw=0)
    net.sprout(sparsity, distribution("erk"))
    net.commit().write_masks()
    return net


def check_books(net: SparseNet) -> None:
    assert net.active.tolist() == [layer.active for layer in net.layers]


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """What the tests share, as one object: conftest cannot be imported."""
    parts: list[Callable[..., object]] = [make, begin, masks, sprouted, check_books]
    return SimpleNamespace(**{part.__name__: part for part in parts})

"""A method of one's own that grows by gradient has to say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import granet
from granet.methods.gradient_memory import Momentum
from granet.methods.rigl import SparseToSparse
from granet.net import SparseNet
from granet.scores import Score, gradient, magnitude, momentum
from granet.weights import SparseLayer
from refusals import refused


def steep(layer: SparseLayer, draw: int) -> Tensor:
    assert layer.gradient is not None
    return layer.gradient.square()


@dataclass(frozen=True, kw_only=True)
class ByScore(SparseToSparse):
    every: int = 1
    takes_pattern = True
    grow: Score = gradient

    def update(self, net: SparseNet, clock: granet.Clock) -> None:
        net.regenerate(0.5, drop=magnitude, grow=self.grow)


class SaysSo(ByScore):
    needs_gradient = True


class Remembers(ByScore):
    @property
    def gradient_memory(self) -> Momentum:
        return Momentum(0.9)


def take_a_step(method: ByScore) -> granet.Sparsifier:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=4)
    model(torch.randn(16, 8)).square().sum().backward()
    optimizer.step()
    return sparsifier


@pytest.mark.parametrize("pattern", ["weight", "2x2", "2:4"])
@pytest.mark.parametrize("grow", [gradient, steep])
def test_growth_by_a_gradient_that_is_not_kept_is_an_error(grow: Score, pattern: str) -> None:
    """It is masked by then: zero at all candidates, which would grow in the order they lie in, without a word."""
    with refused("0.weight", ..., "needs_gradient = True"):
        take_a_step(ByScore(sparsity=0.5, grow=grow, pattern=pattern))


@pytest.mark.parametrize(
    ("make", "grow"),
    [(SaysSo, gradient), (SaysSo, steep), (Remembers, gradient), (Remembers, steep), (Remembers, momentum)],
)
def test_growth_by_a_gradient_that_is_kept_works(make: Callable[..., ByScore], grow: Score) -> None:
    assert take_a_step(make(sparsity=0.5, grow=grow)).history[0].regrown == 16


def test_growth_by_a_momentum_that_is_not_kept_is_an_error() -> None:
    with refused("0.weight", ..., "a Momentum as gradient_memory"):
        take_a_step(ByScore(sparsity=0.5, grow=momentum))


@pytest.mark.parametrize("move", [SparseNet.drop, SparseNet.grow])
def test_counts_that_are_fractions_are_an_error(move: Callable[[SparseNet, Tensor, Score], object]) -> None:
    class Fraction(ByScore):
        def update(self, net: SparseNet, clock: granet.Clock) -> None:
            move(net, net.counts * 0.3, magnitude)

    with refused("counts=torch.float32"):
        take_a_step(Fraction(sparsity=0.5))

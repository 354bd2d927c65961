"""What a user's own functions give a move is checked: scores, distributions and schedules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from granet.net import make_net
from granet.scores import magnitude
from granet.weights import SparseLayer
from refusals import refused


@pytest.mark.parametrize("pattern", ["weight", "2x1"])
@pytest.mark.parametrize(
    ("give", "what"),
    [
        (lambda weight: None, "NoneType"),
        (lambda weight: weight.abs().mean(), "a tensor of shape []"),
        (lambda weight: weight.flatten(1).abs().mean(1), "a tensor of shape [8]"),
    ],
)
def test_a_score_that_is_not_in_the_shape_of_the_weight_is_refused(
    kit: Any, pattern: str, give: Any, what: str
) -> None:
    def score(layer: SparseLayer, draw: int) -> Tensor:
        values: Tensor = give(layer.weight.detach())
        return values

    net = kit.begin(make_net(kit.make().layers, 1, pattern, 0.5))
    with refused("score", ..., f"gave {what} for '0.weight'", [8, 3, 3, 3]):
        net.prune_to(0.5, score)


def with_nan(layer: SparseLayer, draw: int) -> Tensor:
    """Sizes from 0 to 1 in each layer: 0 / 0 where all weights are equal."""
    weight = layer.weight.detach().abs()
    return (weight - weight.min()) / (weight.max() - weight.min())


@pytest.mark.parametrize("pattern", ["weight", "2x1", "fan-in"])
@pytest.mark.parametrize(
    "move", [lambda net: net.prune_to(0.5, with_nan), lambda net: net.regenerate(0.5, drop=magnitude, grow=with_nan)]
)
def test_a_score_that_is_nan_is_refused(kit: Any, pattern: str, move: Any) -> None:
    """All NaN are equal, so that the first weights of the layer would have been kept, and nobody told."""
    layers = kit.make().layers
    layers[1].weight.detach().fill_(0.5)
    net = kit.begin(make_net(layers, 1, pattern, 0.5))
    with refused("score", ..., "'1.weight'"):
        move(net)


def test_infinite_scores_are_in_order(kit: Any) -> None:
    """Their sum is NaN where there are both, but none of them is."""
    net = kit.begin(kit.make())
    net.prune_to(0.5, lambda layer, draw: layer.weight.detach() * torch.inf)
    assert int(net.counts.sum()) == net.numel // 2


def test_a_score_may_be_nan_where_training_has_diverged(kit: Any) -> None:
    """As it always could for the methods that are here: a run that diverges is told by its accuracy."""
    layers = kit.make().layers
    layers[1].weight.detach().fill_(torch.inf)
    kit.begin(make_net(layers, 1, "weight", 0.5)).prune_to(0.5, with_nan)
    layers[1].weight.detach().fill_(0.5)  # now it is the gradients that are not finite
    net = kit.begin(make_net(layers, 1, "weight", 0.5), accept=torch.tensor(False))
    net.prune_to(0.5, with_nan)
    assert int(net.counts.sum()) == net.numel


@pytest.mark.parametrize("pattern", ["weight", "2x1"])
@pytest.mark.parametrize(
    ("densities", "what"),
    [
        ([0.5, 0.5], "gave 2 densities"),
        ([0.5, 0.5, 0.5, 0.5], "gave 4 densities"),
        ([1.5, 0.1, 0.1], "layer 0 of shape [8, 3, 3, 3] the density 1.5"),
        ([1.0, -0.2, 0.1], "layer 1 of shape [10, 8] the density -0.2"),
        ([0.5, 0.5, float("nan")], "the density nan"),
        ([1.0, 1.0, 1.0], "densities of 1 on"),
        ([0.56, 0.56, 0.56], "densities of 0.56 on"),
        ([0.1, 0.2, 0.0], "densities of 0.1119 on"),
    ],
)
def test_a_distribution_that_gives_no_shares_is_refused(
    kit: Any, pattern: str, densities: list[float], what: str
) -> None:
    """A first layer that has to stay dense may leave less than nothing: that was rounded up to the floor unasked."""
    net = kit.begin(make_net(kit.make().layers, 1, pattern, 0.5))
    with refused("distribution", ..., what):
        net.sprout(0.5, lambda shapes, density: densities)


@pytest.mark.parametrize(("given", "what"), [(None, "NoneType"), (0.5, "float")])
def test_a_distribution_that_gives_no_list_is_refused(kit: Any, given: Any, what: str) -> None:
    net = kit.begin(kit.make())
    with refused("distribution", ..., f"gave {what};"):
        net.sprout(0.5, lambda shapes, density: given)


@pytest.mark.parametrize("pattern", ["weight", "2x1"])
def test_a_name_is_no_distribution(kit: Any, pattern: str) -> None:
    """Methods have a field ``distribution`` that is a name; moves take functions."""
    net: Any = kit.begin(make_net(kit.make().layers, 1, pattern, 0.5))
    with refused("distribution", "erk", "distribution('erk')"):
        net.sprout(0.5, "erk")
    with refused("distribution", "global"):
        net.prune_to(0.5, magnitude, "global")


def test_a_distribution_that_is_nearly_right_is_rounded(kit: Any) -> None:
    net = kit.make()
    assert sum(net.shares(0.5, lambda shapes, density: [0.54, 0.54, 0.54])) == net.numel // 2


@pytest.mark.parametrize("sparsity", [-0.1, 1.5, float("nan")])
def test_a_sparsity_that_is_no_share_is_refused(kit: Any, sparsity: float) -> None:
    net = kit.begin(kit.make())
    for move in (net.prune_to, net.reselect):
        with refused("sparsity", sparsity):
            move(sparsity, magnitude)


def test_a_sparsity_that_was_rounded_on_its_way_is_a_share(kit: Any) -> None:
    net = kit.begin(kit.make())
    net.prune_to(-1e-16, magnitude)
    assert int(net.counts.sum()) == net.numel

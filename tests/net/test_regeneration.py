"""Regeneration: drop and grow, against sums written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from examples import examples
from granet.distributions import distribution
from granet.net import make_net
from granet.scores import Score, gradient, magnitude, random
from granet.weights import SparseLayer
from refusals import refused

YES = torch.tensor(True)


def regenerated(weight: np.ndarray, grad: np.ndarray, mask: np.ndarray, moved: int) -> np.ndarray:
    """Keep all but the smallest ``moved``, then take the ``moved`` largest gradients of all that is not kept."""
    inside = np.flatnonzero(mask)
    stay = inside[np.argsort(-np.abs(weight[inside]), kind="stable")][: len(inside) - moved]
    outside = np.setdiff1d(np.arange(len(mask)), stay)
    new = outside[np.argsort(-np.abs(grad[outside]), kind="stable")][:moved]
    result = np.zeros(len(mask), bool)
    result[stay], result[new] = True, True
    return result


@settings(max_examples=examples(60))
@given(
    st.integers(0, 10**6), st.floats(0, 0.99), st.floats(0, 0.99), st.booleans(),
    st.sampled_from([(torch.ceil, math.ceil), (torch.floor, math.floor)]),
)  # fmt: skip
def test_regeneration_is_drop_then_grow(
    kit: Any, seed: int, sparsity: float, ratio: float, coarse: bool, rounding
) -> None:
    net = kit.make(seed=seed)
    sparsity = min(sparsity, 1 - 3 / net.numel)
    kit.begin(net, 0).sprout(sparsity, distribution("erk"))
    net.commit().write_masks()
    if coarse:  # many ties, many zeros
        for layer in net.layers:
            layer.weight.data.round_()
            layer.gradient.round_()
    before = kit.masks(net)
    kit.begin(net).regenerate(ratio, drop=magnitude, grow=gradient, rounding=rounding[0])
    net.commit().write_masks()
    moved = [rounding[1](int(mask.sum()) * ratio) for mask in before]
    for layer, mask, count in zip(net.layers, before, moved, strict=True):
        flat = [t.detach().flatten().numpy() for t in (layer.weight, layer.gradient, mask)]
        assert layer.mask.flatten().tolist() == regenerated(*flat, count).tolist()
        assert layer.active == int(mask.sum())
    assert int(net.regrown) == sum(moved)
    kit.check_books(net)


@pytest.mark.parametrize("rounding", [torch.ceil, torch.floor])
@pytest.mark.parametrize(("ratio", "moved"), [(-1e-17, 0), (1 + 1e-15, 1)])
def test_a_share_of_a_schedule_may_be_out_by_rounding(kit: Any, ratio: float, moved: int, rounding) -> None:
    net = kit.sprouted(0.7)
    before = [layer.active for layer in net.layers]
    kit.begin(net).regenerate(ratio, drop=magnitude, grow=gradient, rounding=rounding)
    net.commit().write_masks()
    assert [layer.active for layer in net.layers] == before
    assert int(net.regrown) == moved * sum(before)
    kit.check_books(net)


@pytest.mark.parametrize("pattern", ["weight", "2x2", "fan-in"])
@pytest.mark.parametrize("ratio", [-0.1, 1.5, 30, math.nan])
def test_other_shares_are_refused(kit: Any, ratio: float, pattern: str) -> None:
    """More than all of the weights would go, more would grow than there was room for, and no count would hold."""
    net = make_net(kit.make([(8, 4), (6, 8)]).layers, 1, pattern, 0.5)
    with refused("ratio", ratio):
        kit.begin(net).regenerate(ratio, drop=magnitude, grow=random)


def test_growth_without_any_gradient_never_picks_an_active_position(kit: Any) -> None:
    """Dead channels: all scores tie at 0, and the layer must still not lose a weight."""
    net = kit.sprouted(0.7)
    for layer in net.layers:
        layer.gradient.zero_()
    before = [layer.active for layer in net.layers]
    kit.begin(net).regenerate(0.5, drop=magnitude, grow=gradient)
    net.commit().write_masks()
    assert [layer.active for layer in net.layers] == before


def test_a_dropped_weight_with_the_largest_gradient_returns_at_once(kit: Any) -> None:
    net = kit.sprouted(0.5)
    layer = net.layers[1]
    active = layer.mask.flatten().nonzero().squeeze(1)
    smallest = active[layer.weight.detach().abs().flatten()[active].argmin()]
    layer.gradient.view(-1)[smallest] = 99
    before = layer.mask.clone()
    net.open(1, [layer], YES)
    net.regenerate(1e-9, drop=magnitude, grow=gradient)  # ceil: one weight
    net.commit().write_masks()
    assert int(net.regrown) == 1
    assert torch.equal(layer.mask, before)


def opposite(layer: SparseLayer, draw: int) -> Tensor:
    return 1 / layer.weight.detach()


@pytest.mark.parametrize("drop", [magnitude, opposite])
def test_prune_then_regenerate_is_the_two_in_turn(kit: Any, drop: Score) -> None:
    """Also where pruning and dropping go by different scores."""
    together, apart = kit.sprouted(0.3), kit.sprouted(0.3)
    kit.begin(together).prune_to(0.8, magnitude)
    together.regenerate(0.4, drop=drop, grow=gradient)
    together.commit().write_masks()
    kit.begin(apart).prune_to(0.8, magnitude)
    apart.commit().write_masks()
    kit.begin(apart).regenerate(0.4, drop=drop, grow=gradient)
    apart.commit().write_masks()
    assert all(map(torch.equal, kit.masks(together), kit.masks(apart)))
    kit.check_books(together)


def test_random_growth_differs_from_draw_to_draw(kit: Any) -> None:
    grown = []
    for draw in (1, 2, 1):
        net = kit.begin(kit.sprouted(0.8), draw)
        net.regenerate(0.5, drop=magnitude, grow=random)
        net.commit().write_masks()
        grown.append(kit.masks(net))
    assert all(map(torch.equal, grown[0], grown[2]))
    assert not all(map(torch.equal, grown[0], grown[1]))

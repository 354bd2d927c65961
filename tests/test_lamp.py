"""The LAMP score against its definition, and in the methods that may prune by it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from granet import GMP, Clock, GraNet
from granet.net import SparseNet
from granet.scores import gradient, lamp, magnitude
from granet.weights import SparseLayer


def layer_of(values: list[float], dtype: torch.dtype = torch.float32) -> SparseLayer:
    return SparseLayer.of("w", nn.Parameter(torch.tensor(values, dtype=dtype).view(1, -1)), 0, 0)


def by_definition(values: list[float]) -> list[float]:
    """w_i^2 over the sum of the squares of i and of all that outrank it: larger ones, and equal ones before it."""
    scores = []
    for i, value in enumerate(values):
        above = [v for j, v in enumerate(values) if abs(v) > abs(value) or (abs(v) == abs(value) and j <= i)]
        scores.append(value**2 / sum(v**2 for v in above) if value else 0.0)
    return scores


WEIGHTS = st.lists(
    st.one_of(st.floats(-3, 3, width=16), st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0])), min_size=1, max_size=20
)


@given(WEIGHTS)
def test_the_score_is_the_definition(values: list[float]) -> None:
    score = lamp(layer_of(values), 0)
    assert score.dtype == torch.float32
    assert score.flatten().tolist() == pytest.approx(by_definition(values), rel=1e-6)


@given(WEIGHTS.filter(any))
def test_the_largest_weight_of_a_layer_has_the_score_one_and_no_other_has(values: list[float]) -> None:
    score = lamp(layer_of(values), 0).flatten().tolist()
    largest = max(range(len(values)), key=lambda i: (abs(values[i]), -i))
    assert score[largest] == 1
    assert sum(s == 1 for s in score) == 1 or min(abs(v) for v in values if v) < 1e-3 * abs(values[largest])


@given(WEIGHTS)
def test_within_a_layer_it_ranks_as_magnitude_does(values: list[float]) -> None:
    score = lamp(layer_of(values), 0).flatten().numpy()
    size = np.abs(values)
    assert (np.diff(score[np.argsort(-size, kind="stable")]) <= 0).all()


def test_by_hand() -> None:
    score = lamp(layer_of([1, -2, 0, 2, 3]), 0)
    assert score.flatten().tolist() == pytest.approx([1 / 18, 4 / 13, 0, 4 / 17, 1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_squares_do_not_leave_the_range_of_the_weights(dtype: torch.dtype) -> None:
    values = [3e-5, 400.0, -500.0]  # squares of 1e-9 and 250000, beyond float16
    score = lamp(layer_of(values, dtype), 0).flatten()
    assert score.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert score.tolist() == pytest.approx(by_definition(torch.tensor(values, dtype=dtype).tolist()))
    assert (score > 0).all()


def test_a_layer_of_zeros_has_no_score() -> None:
    assert lamp(layer_of([0.0, 0.0]), 0).flatten().tolist() == [0, 0]


def test_the_shape_and_the_layout_of_the_weight_do_not_matter() -> None:
    weight = torch.randn(4, 3, 2, 2)
    plain = SparseLayer.of("w", nn.Parameter(weight), 0, 0)
    last = SparseLayer.of("w", nn.Parameter(weight.to(memory_format=torch.channels_last)), 0, 0)
    assert lamp(plain, 0).shape == weight.shape
    assert torch.equal(lamp(plain, 0), lamp(last, 0))


# In a net.


def net_of(seed: int, scales: list[float]) -> SparseNet:
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for index, (shape, scale) in enumerate(zip([(6, 5), (4, 3, 3, 3), (10, 4)], scales, strict=True)):
        weight = torch.randn(shape, generator=generator) * scale
        layers.append(SparseLayer.of(str(index), nn.Parameter(weight), index, seed))
        layers[-1].gradient = torch.randn(shape, generator=generator)
    return SparseNet(layers)


def keep_by_lamp(net: SparseNet, keep: int) -> list[list[bool]]:
    scores = [by_definition(layer.weight.detach().double().flatten().tolist()) for layer in net.layers]
    flat = np.concatenate(scores)
    chosen = np.zeros(len(flat), bool)
    chosen[np.argsort(-flat, kind="stable")[:keep]] = True
    return [part.tolist() for part in np.split(chosen, np.cumsum([len(s) for s in scores])[:-1])]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sparsity", [0.3, 0.8, 0.97])
def test_gmp_by_lamp_keeps_the_largest_scores_of_all(seed: int, sparsity: float) -> None:
    """However different the layers' scales are, and no floor is needed: each layer's largest score is 1."""
    net = net_of(seed, [1.0, 1e-3, 30.0])
    net.floor = 0
    method = GMP(sparsity=sparsity, score="lamp", every=10, prune_end=10)
    expected = keep_by_lamp(net, net.numel - round(net.numel * sparsity))
    net.open(10, net.layers, torch.tensor(True))
    method.update(net, Clock(10, 20))
    net.commit().write_masks()
    assert [layer.mask.flatten().tolist() for layer in net.layers] == expected
    assert min(layer.active for layer in net.layers) >= 1


def test_the_scale_of_a_layer_does_not_matter() -> None:
    nets = [net_of(0, [1.0, 1.0, 1.0]), net_of(0, [2.0, 1 / 64, 16.0])]
    for net in nets:
        net.open(1, net.layers, torch.tensor(True))
        net.prune_to(0.7, lamp)
        net.commit().write_masks()
    assert [layer.mask.tolist() for layer in nets[0].layers] == [layer.mask.tolist() for layer in nets[1].layers]


def test_granet_prunes_by_lamp_and_drops_by_magnitude() -> None:
    method = GraNet(sparsity=0.8, score="lamp", every=10, prune_end=10, regrow=0.4, regrow_end=0.4)
    net, by_hand = net_of(1, [1.0, 0.1, 3.0]), net_of(1, [1.0, 0.1, 3.0])
    net.open(10, net.layers, torch.tensor(True))
    method.update(net, Clock(10, 100))
    net.commit().write_masks()
    by_hand.open(10, by_hand.layers, torch.tensor(True))
    for layer, mask in zip(
        by_hand.layers, keep_by_lamp(by_hand, by_hand.numel - round(by_hand.numel * 0.8)), strict=True
    ):
        layer.mask.copy_(torch.tensor(mask).view(layer.mask.shape))
    by_hand.active = torch.tensor([layer.active for layer in by_hand.layers])
    by_hand.open(10, by_hand.layers, torch.tensor(True))
    by_hand.regenerate(0.4, drop=magnitude, grow=gradient)
    by_hand.commit().write_masks()
    assert [layer.mask.tolist() for layer in net.layers] == [layer.mask.tolist() for layer in by_hand.layers]
    assert int(net.regrown) == sum(math.ceil(0.4 * layer.active) for layer in net.layers)

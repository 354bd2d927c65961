"""Scores hand over the right tensor, and the noise of random ones is noise."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from devices import DEVICES
from granet.keyed_noise import uniform_noise
from granet.patterns.units import SINGLE
from granet.scores import given as given_scores
from granet.scores import gradient, in_order, magnitude, random, random_elsewhere, signal_to_noise
from granet.weights import SparseLayer


def noise(key: tuple[int, ...], size: int = 100_000, device: str = "cpu") -> Tensor:
    return uniform_noise(torch.empty(size, device=device), key)


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]).double())[0, 1])


def layer(seed: int = 0, index: int = 0, shape: tuple[int, ...] = (4, 5)) -> SparseLayer:
    return SparseLayer.of("weight", nn.Parameter(torch.randn(shape)), index, seed)


def test_magnitude_is_the_weight_itself() -> None:
    one = layer()
    assert magnitude(one, 3).data_ptr() == one.weight.data_ptr()
    assert not magnitude(one, 3).requires_grad


def test_gradient_is_the_dense_one() -> None:
    one = layer()
    one.weight.grad = torch.zeros_like(one.weight)
    one.gradient = torch.randn_like(one.weight)
    assert gradient(one, 3) is one.gradient


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_signal_to_noise_is_as_precise_as_the_noise(dtype: torch.dtype) -> None:
    """Weights of half precision have a variance in single precision, and differ by less than their logarithms could."""
    one = SparseLayer.of("weight", nn.Parameter(torch.linspace(1, 2, 12, dtype=dtype).view(3, 4)), 0, 0)
    one.hidden = torch.full((3, 4), -2.0, dtype=torch.promote_types(dtype, torch.float32))
    torch.testing.assert_close(signal_to_noise(SINGLE)(one, 0), one.weight.detach().to(one.hidden) ** 2 / math.exp(-2))


def test_random_depends_on_seed_layer_and_draw_each() -> None:
    assert torch.equal(random(layer(seed=7, index=2), 100), random(layer(seed=7, index=2), 100))
    keys = [(7, 2, 100), (8, 2, 100), (7, 3, 100), (7, 2, 101), (8, 1, 100), (8, 2, 99), (2, 7, 100), (100, 2, 7)]
    drawn = [random(layer(seed, index), draw) for seed, index, draw in keys]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(drawn, 2))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key", [(0, 0, 0), (0, 0, 1), (1, 0, 0), (0, 53, 1000), (-1, 3, 62_000), (2**63 - 1, 0, 5)])
def test_noise_is_uniform(key: tuple[int, ...], device: str) -> None:
    """Chi-square of 1000 bins: mean 999, deviation 45."""
    values = noise(key, device=device)
    assert values.dtype == torch.float32
    assert values.min() >= 0
    assert values.max() < 1
    counts = torch.histc(values.double().cpu(), bins=1000, min=0, max=1)
    assert 780 < float(((counts - 100) ** 2 / 100).sum()) < 1220


def test_every_bit_is_fair_and_unlike_its_neighbours() -> None:
    whole = (noise((5, 1, 3000)) * 2**24).long()
    for bit in range(24):
        bits = whole >> bit & 1
        assert abs(float(bits.double().mean()) - 0.5) < 0.008, bit  # five deviations
        assert abs(correlation(bits[1:], bits[:-1])) < 0.016, bit
        assert abs(correlation(bits[64:], bits[:-64])) < 0.016, bit


def test_noise_is_independent_between_seeds_layers_and_draws() -> None:
    """Keys that differ in one word by 1, by a period of updates, or exchange words."""
    keys = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1000), (0, 0, 2000), (1, 1, 0), (0, 1, 1),
            (2**32, 0, 0), (-1, 0, 0), (0, 53, 1000), (1000, 0, 0), (0, 1000, 0)]  # fmt: skip
    values = {key: noise(key) for key in keys}
    for a, b in itertools.combinations(keys, 2):
        assert abs(correlation(values[a], values[b])) < 0.016, (a, b)  # five deviations
        equal = int((values[a] == values[b]).sum())
        assert equal < 5, (a, b)


def test_the_largest_of_two_draws_overlap_as_chance_has_it() -> None:
    """What selection makes of the noise: two random masks of one tenth share about a hundredth."""
    first, second = (noise((0, 0, draw)).topk(10_000).indices for draw in (1000, 2000))
    shared = len(set(first.tolist()) & set(second.tolist()))
    assert abs(shared - 1000) < 150


@pytest.mark.parametrize("device", DEVICES)
def test_noise_is_the_same_on_every_device_and_in_every_run(device: str) -> None:
    known = [2_241_182, 6_804_837, 9_359_656, 169_240]  # of 2**24; a change breaks resuming and reproduction
    assert (noise((1, 2, 3), 4, device) * 2**24).long().tolist() == known


@pytest.mark.parametrize("device", DEVICES)
def test_noise_counts_positions_in_logical_order(device: str) -> None:
    plain = torch.empty(6, 4, 3, 3, device=device)
    wanted = uniform_noise(plain, (1, 2, 3))
    assert torch.equal(uniform_noise(plain.to(memory_format=torch.channels_last), (1, 2, 3)), wanted)
    assert torch.equal(uniform_noise(plain.half(), (1, 2, 3)), wanted)
    assert torch.equal(wanted.flatten(), noise((1, 2, 3), 216, device))


@given(
    st.lists(st.lists(st.sampled_from([-2.0, -0.5, -0.0, 0.0, 1e-300, 0.5, 3.0, torch.inf]), max_size=9), min_size=1)
)
def test_signed_scores_in_order(values: list[list[float]]) -> None:
    tensors = {str(i): torch.tensor(part, dtype=torch.float64) for i, part in enumerate(values)}
    places = in_order(tensors)
    signed, placed = (torch.cat(list(some.values())) for some in (tensors, places))
    assert torch.equal(signed[:, None] < signed, placed.abs()[:, None] < placed.abs())
    assert [place.shape for place in places.values()] == [value.shape for value in tensors.values()]


def test_ranks_are_in_double_precision() -> None:
    """In single precision those beyond 2^24, of which a large net has many, would not all be whole numbers apart."""
    assert in_order({"a": torch.randn(3)})["a"].dtype == torch.float64


def test_the_least_noise_elsewhere_is_above_the_most_where_a_weight_was(monkeypatch: pytest.MonkeyPatch) -> None:
    one = layer(shape=(2,))
    one.mask.copy_(torch.tensor([True, False]))
    monkeypatch.setattr("granet.scores.random", lambda layer, draw: torch.tensor([1 - 2.0**-24, 0.0]))
    was, elsewhere = random_elsewhere(one, 0).tolist()
    assert 0 < was < elsewhere


def test_given_scores_are_those_of_the_layer() -> None:
    layers = [SparseLayer.of(name, nn.Parameter(torch.ones(2, 2)), i, 0) for i, name in enumerate("ab")]
    score = given_scores({"b": torch.full((2, 2), 2.0), "a": torch.ones(2, 2)})
    assert [float(score(layer, 0).sum()) for layer in layers] == [4.0, 8.0]

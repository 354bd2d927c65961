"""Which weights matter: a score maps a layer to a tensor, and the largest absolute values win.

Selection ranks by absolute value, so a score hands over the raw tensor and no copy is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from granet.layers import SparseLayer

Score = Callable[[SparseLayer, int], Tensor]
"""``score(layer, draw)``; ``draw`` numbers the occasion, for scores that are random."""


def magnitude(layer: SparseLayer, draw: int) -> Tensor:
    """|w|."""
    return layer.weight.detach()


def gradient(layer: SparseLayer, draw: int) -> Tensor:
    """|dL/dw| of this step's batch, before masking."""
    assert layer.gradient is not None
    return layer.gradient


def given(values: Mapping[str, Tensor]) -> Score:
    """Scores computed beforehand, by the name of the layer."""
    return lambda layer, draw: values[layer.name]


def in_order(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Scores whose absolute values are ordered as the signed ``values`` are, all layers together.

    Each value becomes its place among the different values there are, from 0 for the smallest. Places are whole
    numbers, so nothing is rounded and equal values stay equal.

    >>> in_order({"a": torch.tensor([0.5, -3.0]), "b": torch.tensor([-1.0, 0.5])})["b"].tolist()
    [1.0, 2.0]
    """
    device = next(iter(values.values())).device
    joined = torch.cat([value.to(device).reshape(-1) for value in values.values()])
    _, inverse = torch.unique(joined, return_inverse=True)
    places = inverse.double().split([value.numel() for value in values.values()])
    return {
        name: place.view(value.shape).to(value.device)
        for (name, value), place in zip(values.items(), places, strict=True)
    }


def random(layer: SparseLayer, draw: int) -> Tensor:
    """Uniform noise in [0, 1) that depends only on the seed, the layer, the draw and the position.

    A hash of the position instead of a generator: the same on every device and rank, and no state to save.
    """
    return uniform_noise(layer.weight, (layer.seed, layer.index, draw))


def uniform_noise(like: Tensor, key: tuple[int, ...]) -> Tensor:
    """Float32 noise of the shape and device of ``like``, 24 random bits for each (key, position)."""
    salts = [0x243F6A88, 0x85A308D3]  # digits of pi: two independent words from one key
    for word in key:
        salts = [_hash32(salt ^ _hash32((word + i) & 0xFFFFFFFF) ^ (word >> 32)) for i, salt in enumerate(salts)]
    x = torch.arange(like.numel(), dtype=torch.int32, device=like.device)
    x = _scramble(_scramble(x ^ _signed(salts[0])) ^ _signed(salts[1]))
    return ((x >> 8) & 0xFFFFFF).to(torch.float32).mul_(2.0**-24).view(like.shape)


_MIX = ((16, 0x7FEB352D), (15, 0x846CA68B))  # the multipliers of Wellons' "lowbias32" hash


def _scramble(x: Tensor) -> Tensor:
    """A bijection of 32-bit words; int32 arithmetic wraps alike on every device."""
    for shift, factor in _MIX:
        x = (x ^ (x >> shift) & ((1 << (32 - shift)) - 1)) * _signed(factor)
    return x ^ (x >> 16) & 0xFFFF


def _hash32(x: int) -> int:
    x &= 0xFFFFFFFF
    for shift, factor in _MIX:
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 16)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word

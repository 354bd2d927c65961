"""Which weights matter: a score maps a layer to a tensor, and the largest absolute values win.

Selection ranks by absolute value, so a score hands over the raw tensor and no copy is made.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from granet.layers import SparseLayer

Score = Callable[[SparseLayer, int], Tensor]
"""``score(layer, draw)``; ``draw`` numbers the occasion, for scores that are random."""


def magnitude(layer: SparseLayer, draw: int) -> Tensor:
    """|w|."""
    return layer.weight.detach()


def hidden_magnitude(layer: SparseLayer, draw: int) -> Tensor:
    """|w| of the dense weights behind the visible ones."""
    assert layer.hidden is not None
    return layer.hidden


def signal_to_noise(layer: SparseLayer, draw: int) -> Tensor:
    """theta^2 / sigma^2 = 1 / alpha, for weights with a log variance behind them."""
    assert layer.hidden is not None
    return (2 * layer.weight.detach().to(layer.hidden.dtype).abs().log() - layer.hidden.detach()).exp()


def gradient(layer: SparseLayer, draw: int) -> Tensor:
    """|dL/dw| of this step's batch, before masking."""
    assert layer.gradient is not None
    return layer.gradient


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

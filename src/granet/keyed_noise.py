"""Noise that depends only on a key and the position: the same whenever it is asked for, with no state to save.

It is a hash of the position in the whole weight, not a generator. On a GPU a Triton kernel computes the same bits in
one pass.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from granet.kernels import runs_kernels
from granet.tensors.part import Part

Key = tuple[int, ...]
Salts = tuple[int, int]


def uniform_noise(like: Tensor, key: Key, part: Part | None = None) -> Tensor:
    """Float32 noise of the shape and device of ``like``, 24 random bits for each (key, position).

    If ``like`` is a part of a weight, positions are those in the whole: the noise is the same, however that is divided.
    """
    first, second = salts(key)
    if runs_kernels(like.device):
        from granet.kernels import keyed_noise as noise_kernel

        return noise_kernel.uniform_noise(like, first, second, part)
    if part is None:
        x = torch.arange(like.numel(), dtype=torch.int32, device=like.device)
    else:
        x = part.places(torch.arange(like.numel(), device=like.device)).to(torch.int32)  # its low 32 bits
    x = _scramble(_scramble(x ^ first) ^ second)
    return ((x >> 8) & 0xFFFFFF).to(torch.float32).mul_(2.0**-24).view(like.shape)


def normal_noise(like: Tensor, key: Key, part: Part | None = None) -> Tensor:
    """Float32 noise from N(0, 1), by Box and Muller from two uniform draws; repeatable on the same device."""
    radius = uniform_noise(like, (*key, 0), part).neg_().log1p_().mul_(-2).sqrt_()  # of 1 - u, which is never 0
    return uniform_noise(like, (*key, 1), part).mul_(2 * math.pi).cos_().mul_(radius)


@lru_cache(maxsize=4096)
def salts(key: Key) -> Salts:
    """Two independent words from one key, as int32."""
    if not key:
        return 0x243F6A88, _signed(0x85A308D3)  # digits of pi
    *before, word = key
    first, second = (
        _signed(_hash32(salt & _WORD ^ _hash32((word + i) & _WORD) ^ (word >> 32)))
        for i, salt in enumerate(salts(tuple(before)))
    )
    return first, second


_WORD = 0xFFFFFFFF
_MIX = ((16, 0x7FEB352D), (15, 0x846CA68B))  # the multipliers of Wellons' "lowbias32" hash


def _scramble(x: Tensor) -> Tensor:
    """A bijection of 32-bit words; int32 arithmetic wraps alike on every device."""
    for shift, factor in _MIX:
        x = (x ^ (x >> shift) & ((1 << (32 - shift)) - 1)) * _signed(factor)
    return x ^ (x >> 16) & 0xFFFF


def _hash32(x: int) -> int:
    """:func:`_scramble` of one number."""
    x &= _WORD
    for shift, factor in _MIX:
        x = ((x ^ (x >> shift)) * factor) & _WORD
    return x ^ (x >> 16)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word

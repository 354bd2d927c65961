"""The noise of `granet.keyed_noise` as a Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _hash32(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def uniform(position, first, second):
    """24 random bits, in [0, 1)."""
    x = position.to(tl.uint32, bitcast=True) ^ first.to(tl.uint32, bitcast=True)
    x = _hash32(_hash32(x) ^ second.to(tl.uint32, bitcast=True))
    return (x >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit(do_not_specialize=("first", "second"))
def _uniform_noise(out, first, second, numel, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + position, uniform(position, first, second), mask=position < numel)


def uniform_noise(like: Tensor, first: int, second: int) -> Tensor:
    """In the shape of ``like``, positions counted in its logical order."""
    out = torch.empty(like.shape, dtype=torch.float32, device=like.device)
    with torch.cuda.device_of(out):
        _uniform_noise[(triton.cdiv(out.numel(), BLOCK),)](out, first, second, out.numel(), BLOCK)
    return out

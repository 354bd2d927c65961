"""The noise of `granet.keyed_noise` as a Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet.tensors.part import Part

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


@triton.jit(do_not_specialize=("first", "second", "start", "run", "gap"))
def _uniform_noise(out, first, second, start, run, gap, numel, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    position = here
    if not WHOLE:
        position = (here + start + here // run * gap).to(tl.int32)  # the low 32 bits
    tl.store(out + here, uniform(position, first, second), mask=here < numel)


def uniform_noise(like: Tensor, first: int, second: int, part: Part | None = None) -> Tensor:
    """In the shape of ``like``, positions counted in the logical order of the whole that it is a part of."""
    out = torch.empty(like.shape, dtype=torch.float32, device=like.device)
    start, run, gap = (0, 1, 0) if part is None else (part.start, part.run, part.gap)
    if programs := triton.cdiv(out.numel(), BLOCK):
        with torch.cuda.device_of(out):
            _uniform_noise[(programs,)](out, first, second, start, run, gap, out.numel(), part is None, BLOCK)
    return out

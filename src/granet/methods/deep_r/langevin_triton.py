"""The walk of ``langevin.py`` through a layer as one Triton kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from granet.kernels.keyed_noise import BLOCK, uniform
from granet.keyed_noise import Salts


@triton.jit(do_not_specialize=("first", "second", "third", "fourth"))
def _walk(weights, masks, signs, accept, walked, crossed, first, second, third, fourth, rate, l1, noise, numel,
          BLOCK: tl.constexpr):  # fmt: skip
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = position < numel
    weight = tl.load(weights + position, mask=there)
    active = (tl.load(masks + position, mask=there, other=0) != 0) & (tl.load(accept) != 0)
    sign = tl.where(tl.load(signs + position, mask=there, other=0) != 0, 1.0, -1.0)
    radius = tl.sqrt(-2.0 * tl.log(1.0 - uniform(position, first, second)))
    normal = radius * tl.cos(6.283185307179586 * uniform(position, third, fourth))
    moved = tl.where(active, weight + (normal * noise - sign * l1) * rate, weight)
    crosses = active & (moved * sign < 0)
    tl.store(walked + position, moved, mask=there)
    tl.store(crossed + position, crosses.to(tl.uint8), mask=there)


def walk(
    weight: Tensor,
    mask: Tensor,
    sign: Tensor,
    accept: Tensor,
    salts: tuple[Salts, Salts],
    rate: float,
    l1: float,
    noise: float,
) -> tuple[Tensor, Tensor]:
    """For a float32 weight, a mask and signs that lie alike in memory, where positions are counted."""
    moved, crossed = torch.empty_like(weight), torch.empty_like(mask)
    bytes_of = [tensor.view(torch.uint8) for tensor in (mask, sign, accept)]
    numbers = *salts[0], *salts[1], rate, l1, noise, weight.numel()
    with torch.cuda.device_of(weight):
        _walk[(triton.cdiv(weight.numel(), BLOCK),)](
            weight, *bytes_of, moved, crossed.view(torch.uint8), *numbers, BLOCK
        )
    return moved, crossed

"""Masks as bits: eight weights to the byte."""

from __future__ import annotations

import torch
from torch import Tensor

_PLACE = tuple(1 << bit for bit in range(8))


def pack_bits(mask: Tensor) -> Tensor:
    """A bool tensor as uint8, in logical order, the first element in the lowest bit.

    >>> pack_bits(torch.tensor([True, False, True])).tolist()
    [5]
    """
    flat = mask.detach().reshape(-1).to("cpu", torch.uint8)
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8)
    return (flat * torch.tensor(_PLACE, dtype=torch.uint8, device="cpu")).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, shape: torch.Size) -> Tensor:
    """The bool tensor of that shape that :func:`pack_bits` packed."""
    if packed.dtype != torch.uint8 or packed.shape != (-(-shape.numel() // 8),):
        raise ValueError(f"packed mask of {tuple(packed.shape)} {packed.dtype} does not hold {tuple(shape)} bits")
    bits = packed.to("cpu")[:, None].bitwise_and(torch.tensor(_PLACE, dtype=torch.uint8, device="cpu")) != 0
    return bits.view(-1)[: shape.numel()].view(shape)

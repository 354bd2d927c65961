"""Where the layers' tensors lie, as tables on the device: one kernel launch then serves all layers.

A launch has a program for each piece of a layer. It looks up its layer and start in the list of pieces, and the layer's
two addresses and size in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import torch
from torch import Tensor

from granet.transfer import constant, stream_of, to_device

BLOCK = 2048
PIECE = 8 * BLOCK
"""Elements that one program walks through, a block at a time."""


@cache
def has_triton() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def layer_table(tensors: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    """[layers, 3]: address of the tensor, address of its mask, number of elements."""
    row = [x for t, mask in zip(tensors, masks, strict=True) for x in (t.data_ptr(), mask.data_ptr(), t.numel())]
    return constant(row, tensors[0].device)


def pieces(sizes: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """[pieces, 2]: layer and start of each piece; the first piece of each layer, and how many it has."""
    return _pieces(tuple(sizes), device, stream_of(device), PIECE)


@lru_cache(maxsize=64)
def _pieces(sizes: tuple[int, ...], device: torch.device, stream: int, piece: int) -> tuple[Tensor, Tensor, Tensor]:
    rows: list[tuple[int, int]] = []
    first: list[int] = []
    for layer, size in enumerate(sizes):
        first.append(len(rows))
        rows += [(layer, start) for start in range(0, size, piece)]
    return to_device(rows, device), to_device(first, device), to_device([-(-size // piece) for size in sizes], device)

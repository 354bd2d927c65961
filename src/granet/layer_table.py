"""Where the layers' tensors lie, as tables on the device: one kernel launch then serves all layers.

A launch has a program for each piece of a layer. It looks up its piece in the list of pieces, and where the layer lies
in lists of addresses (``piece_triton.py``). The lists are found again by their contents, so that what stays where it is
need not be sent to the device again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from granet.row import Row
from granet.transfer import constant, stream_of, to_device

BLOCK = 2048
PIECE = 8 * BLOCK
"""Elements that one program walks through, a block at a time."""


TRITON = (3, 6)
"""The first version that the kernels were seen to work with; older ones have no masked histograms. It comes with torch
2.10."""


@cache
def has_triton() -> bool:
    try:
        import triton
    except ImportError:
        return False
    return tuple(int(part) for part in triton.__version__.split(".")[:2]) >= TRITON


def runs_kernels(device: torch.device) -> bool:
    """Whether Triton kernels can work on tensors there."""
    return device.type == "cuda" and has_triton()


def addresses(tensors: Sequence[Tensor]) -> Tensor:
    """[layers]: where the tensors lie."""
    if isinstance(tensors, Row):
        return constant(tensors.addresses(), tensors.device)
    return constant(map(Tensor.data_ptr, tensors), tensors[0].device)


def pieces(tensors: Sequence[Tensor]) -> Tensor:
    """[pieces, 5]: the layer of a piece, where in it the piece starts, its length, the layer's number of pieces, and
    where the piece would start if all layers lay in one row.
    """
    device = tensors[0].device
    return _pieces(tuple(map(Tensor.numel, tensors)), device, stream_of(device), PIECE)


@lru_cache(maxsize=64)
def _pieces(sizes: tuple[int, ...], device: torch.device, stream: int, piece: int) -> Tensor:
    before = accumulate(sizes, initial=0)
    rows = [
        (layer, start, min(piece, size - start), -(-size // piece), first + start)
        for layer, (size, first) in enumerate(zip(sizes, before, strict=False))
        for start in range(0, size, piece)
    ]
    return to_device(rows, device)

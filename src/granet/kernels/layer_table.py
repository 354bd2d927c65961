"""Tables on the device that say where the layers' tensors are, so that one kernel launch serves all layers.

A launch has a program for each piece of a layer. It looks up its piece in the list of pieces, and where the layer lies
in lists of addresses (``pieces.py``). The lists are cached on the device by their contents: as long as tensors stay
where they are, nothing has to be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor

from granet.tensors.part import Part
from granet.tensors.row import addresses, first_device, sizes
from granet.tensors.transfer import constant, stream_of, to_device

BLOCK = 2048
PIECE = 8 * BLOCK
"""Elements that one program walks through, a block at a time."""
ALIGNMENT = 16
"""Bytes that a thread can load at once."""


class Cut(NamedTuple):
    """How a launch goes through the layers, as one argument: every argument makes a launch slower."""

    piece: int
    """Elements that one program walks through."""
    block: int
    """Elements at a time."""
    aligned: int
    """All addresses, in bytes, and all sizes are multiples of this; it lets a thread load several elements at once."""


def tables(*several: Sequence[Tensor], parts: Sequence[Part] | None = None) -> tuple[tuple[Tensor, ...], Cut]:
    """What a launch needs to know of lists of tensors, one for each layer, on one device and of the same sizes.

    First, [layers] for each list, where its tensors lie. Then, [pieces, 8]: the layer of a piece, where in it the piece
    starts, its length, the layer's number of pieces, where the piece would start if all layers lay in one row, and the
    start, the run and the gap of the layer's part.
    """
    device = first_device(several[0])
    places = tuple(map(addresses, several))
    known = None if parts is None else tuple(parts)
    return _tables(places, sizes(several[0]), known, device, stream_of(device), PIECE, BLOCK)


@lru_cache(maxsize=64)
def _tables(
    places: tuple[tuple[int, ...], ...],
    numbers: tuple[int, ...],
    parts: tuple[Part, ...] | None,
    device: torch.device,
    stream: int,
    piece: int,
    block: int,
) -> tuple[tuple[Tensor, ...], Cut]:
    cut = Cut(piece, block, gcd(ALIGNMENT, piece, *chain(*places), *numbers))
    return (*[constant(here, device) for here in places], _pieces(numbers, parts, device, stream, piece)), cut


@lru_cache(maxsize=64)
def _pieces(
    numbers: tuple[int, ...], parts: tuple[Part, ...] | None, device: torch.device, stream: int, piece: int
) -> Tensor:
    before = accumulate(numbers, initial=0)
    lie = [(0, 1, 0)] * len(numbers) if parts is None else [(part.start, part.run, part.gap) for part in parts]
    rows = [
        (layer, start, min(piece, size - start), -(-size // piece), first + start, *lie[layer])
        for layer, (size, first) in enumerate(zip(numbers, before, strict=False))
        for start in range(0, size, piece)
    ]
    return to_device(rows, device)

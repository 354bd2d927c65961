"""Zeroing what a mask says is inactive: the one operation of every training step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def zero_inactive(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """tensor <- tensor * mask for all (tensor, mask) pairs, in place, one call for each device and dtype.

    The multiplication is done on the bits, as integers: a NaN or inf at an inactive position becomes 0 too
    (NaN * 0 is NaN), so that inactive weights stay exactly zero whatever a gradient holds. It is also several times
    faster than multiplying floats by a bool mask.
    """
    groups: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for tensor, mask in pairs:
        bits, masks = groups[tensor.device, tensor.dtype]
        bits.append(tensor.detach().view(_INTEGER[tensor.element_size()]))
        masks.append(mask)
    for bits, masks in groups.values():
        torch._foreach_mul_(bits, masks)

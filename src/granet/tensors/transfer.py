"""Small host integers on their way to a device."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def to_device(values: Any, device: torch.device) -> Tensor:
    """Whole numbers (nested lists of them) as an int64 tensor on the device, without waiting for it."""
    on_gpu = device.type == "cuda"
    return torch.tensor(values, dtype=torch.int64, device="cpu", pin_memory=on_gpu).to(device, non_blocking=on_gpu)


def constant(values: int | Iterable[int], device: torch.device) -> Tensor:
    """As :func:`to_device`, but kept and handed out again for the same values, so it must not be written to.

    Each stream has its own: on another stream, the copy to the device might not be done yet.
    """
    return _kept(values if isinstance(values, int) else tuple(values), device, stream_of(device))


@lru_cache(maxsize=256)
def _kept(values: int | tuple[int, ...], device: torch.device, stream: int) -> Tensor:
    return to_device(values, device)


def stream_of(device: torch.device) -> int:
    """The device's current stream, as a number."""
    return torch._C._cuda_getCurrentRawStream(device.index or 0) if device.type == "cuda" else 0

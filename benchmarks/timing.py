"""What benchmarks share: how long a call takes, and on what."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """Until the device has done all that the call gave it to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def described(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"

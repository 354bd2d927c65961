"""The device that a command trains on, and how much of it."""

from __future__ import annotations

import os

import torch

STREAMS = 5
"""Runs at once on a GPU, unless something else is asked for: enough to nearly fill a large one."""

MOST_THREADS = 1024
"""More than any machine has a use for; of very many, the system refuses some, and torch crashes."""


def choose_device(name: str | None, embedded: bool) -> torch.device:
    """The device of that name; by default the CPU for the embedded data, else a GPU if there is one."""
    name = name or ("cuda" if torch.cuda.is_available() and not embedded else "cpu")
    try:
        device = torch.device(name)
        torch.zeros((), device=device).item()  # a device that holds no values, such as meta, refuses only this
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(f"device={name!r}: must be a device that this torch can use, such as cpu or cuda") from error
    return device


def choose_threads(threads: int | None, embedded: bool = False) -> None:
    """Use that many CPU threads; by default 1 for the embedded data, whose network is too small to gain from more."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"threads={threads!r}: must be from 1 to {MOST_THREADS}, a number of CPU threads")
    if threads is not None or embedded:
        torch.set_num_threads(threads or 1)


def choose_packed(asked: int | None, written: int | None, device: torch.device) -> int:
    """Runs at once: what is asked for, else what the file says, else one per CPU core, or some streams of a GPU."""
    if asked is not None and asked < 1:
        raise ValueError(f"packed={asked!r}: must be 1 or more")
    return asked or written or (STREAMS if device.type == "cuda" else os.cpu_count() or 1)

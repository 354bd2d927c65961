"""The device that a command trains on."""

from __future__ import annotations

import torch


def choose_device(name: str | None, data: str) -> torch.device:
    """The device of that name; by default the CPU for the embedded digits, else a GPU if there is one."""
    name = name or ("cuda" if torch.cuda.is_available() and data != "digits" else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device={name!r}: must be a device that this torch can use, such as cpu or cuda") from error
    return device


def choose_threads(threads: int | None, data: str) -> None:
    """So many CPU threads; by default 1 for the embedded digits, whose network is too small to gain much from more."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads!r}: must be 1 or more")
    if threads is not None or data == "digits":
        torch.set_num_threads(threads or 1)

"""What a run is recorded to have run on: versions, commit and device."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from granet import __version__


def environment(device: torch.device) -> dict[str, Any]:
    """For a run on that device."""
    return {
        "granet": __version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
    }


def checked_environment(values: Any) -> dict[str, Any]:
    """What results name must be there, and be text."""
    found = dict(values)
    for name in ("device", "torch"):
        if not isinstance(found[name], str):
            raise ValueError(f"{name}={found[name]!r} is not a text")
    return found


def _commit() -> str:
    """The commit of the checkout this runs from; what GRANET_COMMIT says where there is no repository."""
    if "GRANET_COMMIT" in os.environ:
        return os.environ["GRANET_COMMIT"]
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

"""The arithmetic on a GPU as Triton kernels, with one launch for all layers; and where they can run.

``selection``, ``masking`` and ``keyed_noise`` are called by `granet.selection` and so on, which work on any device and
choose between the two; the other modules are their parts. Triton is imported with the first kernel that is used, not
before.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch


@cache
def has_triton() -> bool:
    """Whether there is Triton; every torch that is asked for comes with one that is new enough, where it does."""
    return find_spec("triton") is not None


def runs_kernels(device: torch.device) -> bool:
    """Whether Triton kernels can work on tensors there."""
    return device.type == "cuda" and has_triton()

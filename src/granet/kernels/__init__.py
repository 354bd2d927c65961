"""The arithmetic on a GPU as Triton kernels, with one launch for all layers; and where they can run.

``selection``, ``masking`` and ``keyed_noise`` are called by `granet.selection` and so on, which work on any device and
choose between the two; the other modules are their parts. Triton is imported with the first kernel that is used, not
before.
"""

from __future__ import annotations

from functools import cache

import torch

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

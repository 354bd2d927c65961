"""Launching a Triton kernel again and again, at little cost to the host."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor

_READY: dict[tuple[Any, ...], Any] = {}


def launch(kernel: Any, programs: int, tensors: Sequence[Tensor], *constants: Hashable) -> None:
    """``kernel[(programs,)](*tensors, *constants)``, on the current device.

    Triton looks at the type and the alignment of every argument of every launch to find out whether it has compiled
    such a kernel. Here the constants alone tell: whatever varies besides them must not, as with tensors of always the
    same types that are no parts of others.
    """
    key = (kernel, tensors[0].get_device(), *constants)
    ready = _READY.get(key)
    if ready is None:
        _READY[key] = kernel[(programs,)](*tensors, *constants)
    else:
        ready[(programs, 1, 1)](*tensors, *constants)

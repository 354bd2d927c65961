"""`torch.compile` once for all runs of a process.

A function that takes its model as an argument is compiled for models of that kind, not for that one: runs of the same
architecture share what was compiled, and all but the first begin within a second.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled anew for every kind of arguments that it meets."""
    return torch.compile(function, dynamic=False)


def of_many_kinds() -> AbstractContextManager[None]:
    """In this context nothing is left uncompiled because other kinds of arguments were met before."""
    patch = torch._dynamo.config.patch
    limits: AbstractContextManager[None] = patch(recompile_limit=10_000, accumulated_recompile_limit=10_000)
    return limits

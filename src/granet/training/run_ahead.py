"""How far the host may run ahead of a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import Protocol

import torch

STEPS = 16
"""Enough that the GPU never waits for the host, few enough that nothing waits long for the GPU."""


class Event(Protocol):
    """A place in a stream's work: ``synchronize`` waits until it is reached, not at all if it was never recorded."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...


class RunAheadLimit:
    """Called after each step: with n events, waits until the n-th step before this one is done.

    Without it the host hands the GPU a whole epoch at once. Whatever must wait until the GPU is idle, such as an
    allocation or the capture of another run's step, would then wait for whole epochs of all other runs.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = cycle(events)

    def __call__(self) -> None:
        event = next(self._events)
        event.synchronize()
        event.record()


def cuda_run_ahead_limit() -> RunAheadLimit:
    """Of the current GPU; the thread sleeps while it waits."""
    return RunAheadLimit([torch.cuda.Event(blocking=True) for _ in range(STEPS)])  # type: ignore[no-untyped-call]

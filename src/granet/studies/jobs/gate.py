"""Turns for threads that share a GPU: many train at once, or one builds its run alone.

While a stream is captured, no thread may wait for the whole device: both that thread and the capture would fail. Such
waits hide in libraries: when cuDNN tries its kernels, or a module is loaded for the first time. While a model is
compiled or traced, torch replaces `nn.Module.__call__`, so no other thread may call a model. Kernels that are timed
beside other work are measured wrongly, and seeds belong to the whole process. All of this happens while a run is built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Gate:
    """``alone`` is for one at a time; ``working`` for any number, who step aside often, for one that wants to be."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._alone = False

    @contextmanager
    def working(self) -> Iterator[Callable[[], None]]:
        """Yields a function to call often, where nothing of the work is under way."""
        self._enter()
        try:
            yield self._step_aside
        finally:
            self._leave()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            self._changed.wait_for(lambda: self._working == 0)
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()

    def _enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._working += 1

    def _leave(self) -> None:
        with self._changed:
            self._working -= 1
            self._changed.notify_all()

    def _step_aside(self) -> None:
        if self._alone:
            self._leave()
            self._enter()

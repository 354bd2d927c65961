"""A lock for threads that share a GPU: many train at once, or one prepares its step alone.

While a stream is captured, no thread may wait for the whole device: both that thread and the capture would fail. Such
waits hide in libraries: when cuDNN tries its kernels, or a module is loaded for the first time. While a model is
compiled, torch replaces `nn.Module.__call__` for tracing, so no other thread may call a model. And kernels that are
timed beside other work are measured wrongly. So at these times all other threads wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """``working`` is for any number at a time, and short; ``alone`` waits until they are out and keeps them out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._alone = False

    @contextmanager
    def working(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

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


GATE = Gate()
"""One for the process, since a capture or a compilation affects all of its threads."""

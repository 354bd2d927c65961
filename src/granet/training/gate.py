"""Many threads train on one GPU, or one of them makes its step alone.

While a stream is captured, no thread may wait for the whole device: both that thread and the capture would fail. Such
waits hide in libraries, where cuDNN tries its kernels or a module is loaded for the first time. While a model is
compiled, torch traces with its own `nn.Module.__call__` in the place of the usual one, so that no thread may call a
model. And kernels that are tried beside the work of others are measured wrongly. So nobody works then.
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
"""Of this process: all of its threads feel a capture, and what torch compiles."""

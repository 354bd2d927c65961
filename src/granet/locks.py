"""A folder that one process, or one thread of it, writes to at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

_LOCKS: set[int] = set()
"""Descriptors that hold a lock."""


def _let_go() -> None:
    """A worker process that reads images outlives a killed run by seconds, and must not keep the folder locked."""
    while _LOCKS:
        os.close(_LOCKS.pop())


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_let_go)


class Held(Exception):
    """Somebody else has locked the folder."""


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Nobody else holds the lock of the folder meanwhile; if somebody does, wait for them or raise Held.

    It ends with the process, however that ends.
    """
    if fcntl is None:
        yield  # type: ignore[unreachable]
        return
    descriptor = os.open(folder, os.O_RDONLY)
    _LOCKS.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise Held from error
        yield
    finally:
        _LOCKS.discard(descriptor)
        os.close(descriptor)

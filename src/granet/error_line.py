"""Errors and warnings in one line each, as the command line tells them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def error_line(error: BaseException) -> str:
    """Its type and the first line of what it says; the lines after it are often about the code of a library.

    >>> error_line(RuntimeError("shapes do not fit\\nsee the log"))
    'RuntimeError: shapes do not fit'
    >>> error_line(KeyError())
    'KeyError: '
    """
    return f"{type(error).__name__}: {error}".splitlines()[0]


def first_line(error: BaseException) -> str:
    """What it says, where its type adds nothing; the type only if it says nothing.

    >>> first_line(RuntimeError("shapes do not fit\\nsee the log")), first_line(AssertionError())
    ('shapes do not fit', 'AssertionError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Show a warning of ours as an error is shown, without the place in the code; others as ever."""
    usual = warnings.formatwarning

    def plain(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        ours = issubclass(category, UserWarning) and str(message).startswith("granet: ")
        return f"{message}\n" if ours else usual(message, category, filename, lineno, line)

    warnings.formatwarning = plain
    try:
        yield
    finally:
        warnings.formatwarning = usual

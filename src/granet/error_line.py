"""Errors and warnings in one line each, as the command line tells them, and words that several have in common."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


def error_line(error: BaseException) -> str:
    """Its type and the first line of what it says; the lines after it are often about the code of a library.

    >>> error_line(RuntimeError("shapes do not fit\\nsee the log"))
    'RuntimeError: shapes do not fit'
    >>> error_line(KeyError())
    'KeyError: '
    """
    return f"{type(error).__name__}: {error}".splitlines()[0]


def first_line(error: BaseException) -> str:
    """The first line of its message, or the name of its type if it has none.

    >>> first_line(RuntimeError("shapes do not fit\\nsee the log")), first_line(AssertionError())
    ('shapes do not fit', 'AssertionError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def and_more(names: Sequence[object], told: int = 1) -> str:
    """What follows the first of these names, where they stand for all of them.

    >>> and_more(["a", "b", "c"]), and_more(["a"])
    (' and 2 more', '')
    """
    return f" and {len(names) - told} more" if len(names) > told else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for the end of an error about an unknown name; nothing if no known one is like it.

    >>> did_you_mean("granett", ["gmp", "granet"]), did_you_mean("x", ["gmp"])
    (" (did you mean 'granet'?)", '')
    """
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


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

"""An error in one line, for a warning or for a line about a run that failed."""

from __future__ import annotations


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

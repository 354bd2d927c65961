"""A command line: arguments become a command that is run, and whatever stops it is one line."""

from __future__ import annotations

import errno
import importlib.util
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import granet
from granet.error_line import warnings_in_one_line
from granet.files import DISK_ERRORS

if TYPE_CHECKING:
    from rich.console import Console

_PATH_ERRORS = frozenset({errno.ENAMETOOLONG, errno.EACCES, errno.EPERM})
"""What a path that somebody names may run into before it is known whether anything is there."""


class Command(Protocol):
    """A dataclass whose fields are the options of a command, and whose docstrings are its help.

    What it does is imported where it is done: help and wrong options wait for neither torch nor rich.
    """

    def run(self, console: Console) -> None:
        """Do it."""


@dataclass(frozen=True)
class CommandLine:
    """What one types. Needs tyro and rich, and says so where they are missing."""

    name: str
    parse: Callable[[str, Sequence[str]], Command]
    """From that name and the arguments to a command; called once it is known that what it imports is there."""
    checkpointed: Callable[[Sequence[str]], bool]
    """Whether what these arguments ask for can be taken up again; of anything else nothing is left when stopped."""

    def __call__(self, arguments: Sequence[str] | None = None) -> None:
        """Entry point. A wrong value ends with one line on stderr and exit code 2."""
        arguments = sys.argv[1:] if arguments is None else list(arguments)
        try:
            try:
                self._run(arguments)
            finally:
                print(end="", flush=True)  # few lines wait until the end; there may be no stdout at all
        except BrokenPipeError:  # nobody reads on, as with `granet train --help | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
            sys.exit(1)
        except ValueError as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            sys.exit(2)
        except OSError as error:
            if error.errno not in DISK_ERRORS | _PATH_ERRORS:
                raise
            cannot = "cannot be written" if error.errno in DISK_ERRORS else "cannot be looked at"
            print(f"{self.name}: {error.filename or 'a file'}: {cannot} ({error.strerror})", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            goes_on = "; the same command goes on from the last checkpoint" if self.checkpointed(arguments) else ""
            print(f"{self.name}: stopped{goes_on}", file=sys.stderr)
            sys.exit(130)

    def _run(self, arguments: list[str]) -> None:
        _write_any_sign()
        if arguments == ["--version"]:
            print(f"granet {granet.__version__}")
            return
        missing = [name for name in ("tyro", "rich") if importlib.util.find_spec(name) is None]
        if missing:
            sys.exit(f"{self.name}: the command line needs {' and '.join(missing)}: pip install 'granet[cli]'")
        sys.path.append(os.getcwd())  # as `python -m granet` has it: `--model mine:net` finds mine.py where one works
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is an interrupt
        with warnings_in_one_line():
            command = self.parse(self.name, arguments)
            from granet.cli.console import create_console

            command.run(create_console())


def _write_any_sign() -> None:
    r"""A sign that the terminal's encoding lacks, such as ± in ASCII, becomes \xb1, as Python has it for stderr alone.

    It would end the command otherwise. So would a path that is no UTF-8.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")

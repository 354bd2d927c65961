"""From arguments to a command; whatever is wrong with them is one line. Needs tyro."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import TypeVar

import tyro

from granet.error_line import did_you_mean

C = TypeVar("C")

_WRONG_TYPE = re.compile(r"Error parsing (\S+): no type matching (.+) could be instantiated from \[(.*)\]")


def parse(prog: str, command: Callable[..., C], arguments: Sequence[str]) -> C:
    """The command with the options that the arguments give it, or help; ValueError that names what is wrong."""
    _refuse_empty(prog, arguments)
    with _wrong_is_one_line(f"{prog} --help"):
        parsed: C = tyro.cli(command, prog=prog, args=arguments, config=_CONFIG)
    return parsed


def parse_one_of(prog: str, description: str, commands: Mapping[str, Callable[..., C]], arguments: Sequence[str]) -> C:
    """The same for the command that the first argument names."""
    _refuse_empty(prog, arguments)
    name = arguments[0] if arguments else ""
    if name not in commands and not name.startswith("-"):
        hint = did_you_mean(name, commands)
        raise ValueError(f"command={name!r}: must be one of {', '.join(commands)}{hint}; see {prog} --help")
    with _wrong_is_one_line(f"{prog} {name} --help" if name in commands else f"{prog} --help"):
        parsed: C = tyro.extras.subcommand_cli_from_dict(
            dict(commands), prog=prog, description=description, args=arguments, config=_CONFIG
        )
    return parsed


_CONFIG = (tyro.conf.DisallowNone,)
"""An option is left out, not given as the word None."""


@contextmanager
def _wrong_is_one_line(where: str) -> Iterator[None]:
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
    except SystemExit as ended:
        if not ended.code:  # it was help
            raise
        raise ValueError(f"{_in_one_line(said.getvalue())}; see {where}") from None


def _refuse_empty(prog: str, arguments: Sequence[str]) -> None:
    """Most often it is a variable of the shell that is not set; as a path it would stand for the current folder."""
    for before, argument in itertools.pairwise([prog, *arguments]):
        if not argument or (argument.startswith("--") and argument.endswith("=")):
            raise ValueError(f"'' after {argument or before}: must not be empty")


def _in_one_line(box: str) -> str:
    """What tyro says in a box of many lines: its first paragraph, and the option that it takes to be meant.

    The lines between paragraphs are empty or rules; the title is in the frame or, where the terminal has only ASCII, a
    paragraph of its own.
    """
    plain = re.sub(r"\x1b\[[\d;]*m", "", box)  # colours
    rows = [re.sub("[│╭╮╰╯]", "", row).strip() for row in plain.splitlines()]
    parted = itertools.groupby(rows, key=lambda row: bool(row) and "─" not in row and set(row) != {"-"})
    paragraphs = [list(group) for is_text, group in parted if is_text][0 if "─" in plain else 1 :]
    if not paragraphs:  # another layout than this one
        return " ".join(plain.split())
    said = _WRONG_TYPE.sub(r"\1=\3: must be \2", " ".join(paragraphs[0]).rstrip("."))
    meant = next((rows[1] for rows in paragraphs if rows[0] == "Perhaps you meant:"), None)
    return said if meant is None else f"{said} (did you mean {meant}?)"

"""Files that appear whole or not at all, also when the power goes."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it becomes `path` at the end, or vanishes on an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def unfinished(folder: Path) -> list[Path]:
    """What :func:`atomic` left in a folder when its process was killed."""
    names = re.compile(r"\.(?P<name>.+)\.\d+(?P<suffix>\.\w+)?")
    found = ((path, names.fullmatch(path.name)) for path in folder.glob(".*") if path.is_file())
    return [path for path, name in found if name and name["name"].endswith(name["suffix"] or "")]


def read_toml(path: Path, field: str) -> dict[str, Any]:
    """The table in a TOML file; ValueError that names ``field``, which the path was given as, and what is wrong."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{field}={str(path)!r}: must be a file that can be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{field}={str(path)!r}: must be TOML ({error})") from error


def _flush(path: Path) -> None:
    """Wait until what was written there is on the disk: a name may not be older than its content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

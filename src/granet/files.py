"""Files: what is written appears whole or not at all, even if the power fails; errors name what cannot be read."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
import threading
import tomllib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Errors that only writing causes, in any file: the disk is full or read-only, or a limit is reached."""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it becomes `path` at the end, or vanishes on an error.

    Processes and threads that write the same file at once get one each; the last to finish wins. A path that exists and
    is no ordinary file, such as /dev/null, is refused: replacing it would take it away from everybody.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileExistsError(errno.EEXIST, "is there and no ordinary file", str(path))
    temporary = path.with_name(f".{path.name}.{threading.get_native_id()}{path.suffix}")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    except OSError as error:
        if error.filename is None or str(error.filename) == str(temporary):
            error.filename = str(path)  # the name that the user knows
            del error.filename2  # None would be shown as a second name
        raise
    except Exception as error:  # safetensors reports a system error only in its text
        if (number := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    finally:
        with suppress(OSError):  # even for a file that was never made, a read-only disk refuses and would hide why
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    r"""Write a file of text in UTF-8, whole or not at all; bytes of a path that are no UTF-8 are told as \udcff."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def writing_to(
    field: str,
    path: Path,
    allowed: str = "must be a folder that can be written to",
    errors: Collection[int] | None = None,
) -> Iterator[None]:
    """ValueError that names ``field``, which the path was given as, for whatever keeps the block from writing there.

    A block that does more than write names the ``errors`` to take for that, such as :data:`DISK_ERRORS`.
    """
    try:
        yield
    except OSError as error:
        if errors is not None and error.errno not in errors:
            raise
        raise ValueError(f"{field}={str(path)!r}: {allowed} ({error.strerror or error})") from error


def make_folder(field: str, path: Path) -> None:
    """Make a folder, unless it is there; ValueError that names ``field`` if nothing can be written to it."""
    with writing_to(field, path):
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()


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


def read_json(path: Path, build: Callable[[Any], T]) -> T:
    """What ``build`` makes of a JSON file; ValueError that names the file if it cannot be read or understood."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: must be a file that can be read ({error.strerror})") from error
    return parse_json(str(path), text, build)


def parse_json(where: str, text: bytes, build: Callable[[Any], T]) -> T:
    """What ``build`` makes of JSON; ValueError that says where it was if it cannot be understood."""
    try:
        return build(json.loads(text.decode("utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{where}: is damaged or of another version of granet ({said})") from error


def _flush(path: Path) -> None:
    """Wait until what was written there is on the disk: the name must not get there before the content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

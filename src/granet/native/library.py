"""The native library: where it is, and its refusals as exceptions."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

INTERFACE = 2
"""``GRANET_INTERFACE`` of granet_native.h, which is what these modules were written for."""
VARIABLE = "GRANET_NATIVE_LIBRARY"
"""Names a library to load instead of the one beside this module."""

_OK, _INVALID, _UNSUPPORTED, _MEMORY = range(4)


class NativeMissing(ImportError):
    """There is no native library here, and why."""


class NativeUnsupported(ValueError):
    """What the native library cannot compute, though it has a meaning: it must be computed elsewhere."""


@cache
def _loaded(named: str | None) -> ctypes.CDLL:
    """The library of that name, or the one beside this module: looked for once, as every call of it comes by here."""
    path = named or _found()
    try:
        loaded = ctypes.CDLL(path)
        loaded.granet_message.restype = ctypes.c_char_p
        loaded.granet_isas.restype = ctypes.c_char_p
        loaded.granet_struct_size.restype = ctypes.c_size_t
        interface = loaded.granet_interface()
    except (OSError, AttributeError) as error:
        raise NativeMissing(f"{path}: is no native library of granet for this machine: {error}") from error
    if interface != INTERFACE:
        raise NativeMissing(f"{path}: has interface {interface}, not {INTERFACE}: build granet again")
    return loaded


def _found() -> str:
    name = {"darwin": "libgranet_native.dylib", "win32": "granet_native.dll"}.get(sys.platform, "libgranet_native.so")
    for folder in (Path(__file__).parent, *_editable_folders()):
        if (folder / name).is_file():
            return str(folder / name)
    raise NativeMissing(
        "granet was installed without its native library, as no C++ compiler was found then: install one, and granet "
        "again"
    )


def _editable_folders() -> list[Path]:
    """Where an editable install has put what it built."""
    parts = Path("granet", "native")
    return [Path(entry, parts) for entry in sys.path if entry and Path(entry, parts) != Path(__file__).parent]


def library() -> ctypes.CDLL:
    """The native library, or `NativeMissing`."""
    return _loaded(os.environ.get(VARIABLE))


def isas(bits: int = 32) -> tuple[str, ...]:
    """The instruction sets that there are kernels on numbers of so many bits for and that this machine has, the best
    first."""
    return tuple(library().granet_isas(ctypes.c_int64(bits)).decode().split())


def call(loaded: ctypes.CDLL, name: str, *arguments: Any) -> None:
    """Calls a function that returns a code; a refusal is raised with its message."""
    code = getattr(loaded, name)(*arguments)
    if code == _OK:
        return
    message = loaded.granet_message().decode(errors="replace")
    kinds: dict[int, type[Exception]] = {
        _INVALID: ValueError,
        _UNSUPPORTED: NativeUnsupported,
        _MEMORY: MemoryError,
    }
    raise kinds.get(code, RuntimeError)(message)

"""Reads the CIFAR python batches, which are pickles, without letting a pickle run anything.

An ordinary unpickler imports and calls whatever a file names. This one resolves only the names that the published files
(and re-saved copies of them) contain, and resolves even these to inert stand-ins: no numpy object is ever built from a
pickle's own state, so a forged dtype or shape reaches nothing but the checks below.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_MEMO_OPCODES = ("PUT", "BINPUT", "LONG_BINPUT")


class HostilePickleError(ValueError):
    """The file asks for something that a batch of images has no use for."""


class _Dtype:
    """Stands for `numpy.dtype`: remembers its arguments, knows only bytes and integers."""

    __slots__ = ("code", "order")

    def __init__(self, code: object) -> None:
        self.code = code
        self.order: object = "|"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]


class _Array:
    """Stands for `numpy.ndarray`: remembers shape, type and bytes until `value` has checked that they agree."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def value(self) -> np.ndarray[Any, Any]:
        """The array, over the pickle's own bytes (read-only)."""
        try:
            _version, shape, dtype, fortran, raw = self.state
        except (TypeError, ValueError):
            raise HostilePickleError("array without a shape, a type and bytes") from None
        code, order = (_text(dtype.code), _text(dtype.order)) if isinstance(dtype, _Dtype) else ("", "")
        if code not in ("u1", "i1", "i4", "i8") or order not in ("|", "<"):
            raise HostilePickleError("array of another type than bytes and integers")
        if not isinstance(raw, bytes | bytearray) or fortran not in (False, 0):
            raise HostilePickleError("array whose contents are not plain row-major bytes")
        if not isinstance(shape, tuple) or len(shape) > 2 or not all(type(size) is int and size >= 0 for size in shape):
            raise HostilePickleError("array without a proper shape")
        kind = np.dtype(f"<{code}")
        if math.prod(shape) * kind.itemsize != len(raw):
            raise HostilePickleError(f"array of shape {shape} and type {code} holds {len(raw)} bytes")
        return np.frombuffer(raw, kind).reshape(shape)


class _Callable:
    """A name that a pickle may call. Not a function or a class, so that a pickle can neither edit nor subclass it."""

    __slots__ = ("encode", "name")

    def __init__(self, name: str, encode: Callable[[str], bytes]) -> None:
        self.name, self.encode = name, encode

    def __call__(self, *arguments: Any) -> object:
        if self.name == "dtype":
            return _Dtype(arguments[0])
        if self.name == "_reconstruct":
            return _Array()
        if self.name == "encode" and isinstance(arguments[0], str):
            return self.encode(arguments[0])
        raise HostilePickleError(f"call of {self.name}")


_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),  # how Python 3 writes bytes in protocol 2
}


class _Unpickler(pickle.Unpickler):
    """What is made of a file stays as small as the file: eight bytes can ask for a long text to be encoded again."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self._encode = cache(lambda text: text.encode("latin1"))

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _ALLOWED:
            wanted = f"{module}.{name}"[:80]
            raise HostilePickleError(f"it asks for {wanted!r}, which a batch of images does not need")
        return _Callable(name, self._encode)


def load_batch(data: bytes) -> dict[str, Any]:
    """The dictionary in a pickled batch: text keys, values of numbers, text, lists, and integer numpy arrays.

    Raises `ValueError` saying what is wrong, for hostile files as for damaged ones.
    """
    _refuse_memo_bomb(data)
    try:
        content = _Unpickler(data).load()
    except HostilePickleError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise _unreadable(error) from error
    if not isinstance(content, dict):
        raise ValueError(f"holds a {type(content).__name__}, expected a dictionary")
    batch: dict[str, Any] = {}
    for key, value in content.items():
        name = _text(key)
        if not isinstance(name, str):
            raise ValueError(f"has a key of type {type(name).__name__}, expected text")
        batch[name] = value.value() if isinstance(value, _Array) else value
    return batch


def _text(value: object) -> object:
    """Python 2 wrote text as bytes."""
    return value.decode("latin1") if isinstance(value, bytes) else value


def _unreadable(error: Exception) -> ValueError:
    """In one line, where pickle's own words may take two."""
    return ValueError(f"not a readable pickle ({type(error).__name__}: {' '.join(str(error).split())})")


def _refuse_memo_bomb(data: bytes) -> None:
    """The unpickler's memo is a table as long as the largest index in the file: ten bytes could ask for 30 GB of it."""
    try:
        for position, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name in _MEMO_OPCODES and isinstance(argument, int) and argument > position + 1:
                raise HostilePickleError(f"memo index {argument} after {position} operations")
    except HostilePickleError:
        raise
    except Exception as error:  # see load_batch
        raise _unreadable(error) from error

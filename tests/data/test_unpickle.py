"""A batch file is data: only the published ones are opened, and nothing that a pickle names is ever called."""

from __future__ import annotations

import hashlib
import os
import pickle
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from granet.data.published import FILES
from granet.data.unpickle import HostilePickleError, load_batch

PUBLISHED = FILES["cifar10"]["data_batch_1"]


def opened(data: bytes) -> dict[bytes, Any]:
    """What is in a file if its checksum is the one of a published file."""
    return load_batch(data, hashlib.md5(data).hexdigest())


class Calls:
    """Pickles to a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


def by_name(module: str, name: str, arguments: bytes = b"(t") -> bytes:
    """A protocol-2 pickle that calls `module.name` with a pickled argument tuple."""
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + arguments + b"R."


def array_state(shape: bytes, dtype: bytes, raw: bytes) -> bytes:
    """{'data': array} in protocol 2, its state put together by hand."""
    return (
        b"\x80\x02}U\x04data"
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tbs."
    )


def dtype_of(code: bytes) -> bytes:
    state = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    return b"cnumpy\ndtype\nU" + bytes([len(code)]) + code + b"K\x00K\x01\x87R" + state


SHAPE_2_3 = b"K\x02K\x03\x86"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("function", [os.system, os.mkdir, exec, eval, getattr, open, __import__])
def test_no_function_is_called(function: Any, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argument = "touch run" if function is os.system else "open('run', 'w')" if function in (exec, eval) else "run"
    hostile = pickle.dumps({"data": Calls(function, argument)}, protocol=protocol)
    with pytest.raises(ValueError, match=f"^MD5 .*, published {PUBLISHED}: damaged, incomplete or another version"):
        load_batch(hostile, PUBLISHED)
    with pytest.raises(HostilePickleError, match=r"it asks for .*, which a batch of images does not need"):
        opened(hostile)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "hostile",
    [
        by_name("numpy", "load"),
        by_name("numpy", "ndarray.tofile"),
        by_name("numpy.core.multiarray", "fromfile"),
        by_name("numpy", "fromfile"),
        by_name("_codecs", "lookup"),
        by_name("_codecs", "encode", b"(K\x05t"),
        by_name("copyreg", "_reconstructor"),
        by_name("granet.data.unpickle", "load_batch"),
        by_name("builtins", "bytearray"),
        b"\x80\x02(S'touch run'\nios\nsystem\n.",  # INST
        b"\x80\x02(cos\nsystem\nS'touch run'\no.",  # OBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
    ],
)
def test_even_a_published_file_could_name_nothing_else(
    hostile: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HostilePickleError, match=r"it asks for '.*', which a batch of images does not need"):
        opened(hostile)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "hostile",
    [
        by_name("numpy", "load"),
        by_name("numpy", "ndarray.tofile"),
        by_name("numpy.core.multiarray", "fromfile"),
        by_name("numpy", "fromfile"),
        by_name("_codecs", "lookup"),
        by_name("copyreg", "_reconstructor"),
        by_name("granet.data.unpickle", "load_batch"),
        by_name("builtins", "bytearray"),
        by_name("numpy", "ndarray", b"(J\xff\xff\xff\x7ft"),  # a call of the class itself: 2 GB if it were real
        by_name("_codecs", "encode", b"(K\x05t"),
        b"\x80\x02(S'touch run'\nios\nsystem\n.",  # INST
        b"\x80\x02(cos\nsystem\nS'touch run'\no.",  # OBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # NEWOBJ on a stand-in
        b"\x80\x02cnumpy\ndtype\n}U\x04nameU\x06systemsb.",  # BUILD on a stand-in
        b"\x80\x02\x82\x01.",  # extension registry
        b"\x80\x02Pid\n.",  # persistent id
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of 2**31 entries
        b"p99999999999\n.",
        array_state(SHAPE_2_3, dtype_of(b"O"), b"123456"),
        array_state(SHAPE_2_3, dtype_of(b"u1"), b"12345"),
        array_state(SHAPE_2_3, dtype_of(b"f8"), b"x" * 48),
        array_state(SHAPE_2_3, b"U\x02u1", b"123456"),
        array_state(b"J\xff\xff\xff\xffK\x06\x86", dtype_of(b"u1"), b"123456"),
        array_state(b"K\x06", dtype_of(b"u1"), b"123456"),
        array_state(b"(" + b"K\x01" * 200 + b"K\x06t", dtype_of(b"u1"), b"123456"),
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\n)Rs.",  # an array that was never filled
    ],
)
def test_forged_pickles_are_refused(hostile: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^MD5 "):
        load_batch(hostile, PUBLISHED)
    assert list(tmp_path.iterdir()) == []


LONG = 100_000
TEXT = b"X" + struct.pack("<I", LONG) + b"a" * LONG  # with it, a file of 200 kB


@pytest.mark.parametrize(
    "hostile",
    [
        # 10,000 times the same: encoded text, the type of an array, and an array whose bytes are text
        b"\x80\x02c_codecs\nencode\nq\x00" + TEXT + b"\x85q\x01(" + b"h\x00h\x01R" * 10_000 + b"l.",
        b"\x80\x02cnumpy\ndtype\nq\x00T" + TEXT[1:] + b"\x85q\x01(" + b"h\x00h\x01R" * 10_000 + b"l.",
        b"\x80\x02}(U\x01xcnumpy.core.multiarray\n_reconstruct\n)R(K\x01J"
        + struct.pack("<i", LONG)
        + b"\x85"
        + dtype_of(b"u1")
        + b"\x89"
        + TEXT
        + b"tbq\x00"
        + b"".join(b"U\x04%04xh\x00" % number for number in range(10_000))
        + b"u.",
        b"\x80\x02}" + b"]" * 100_000 + b"a" * 99_999 + b"K\x01s.",  # deep nesting
        # a shape of 50,000 sides of 255 bytes each: their product would take an hour
        array_state(b"(\x8a\xff" + b"\x7f" * 255 + b"q\x00" + b"h\x00" * 50_000 + b"t", dtype_of(b"u1"), b"123456"),
    ],
)
def test_a_small_file_takes_little_memory_and_time(hostile: bytes) -> None:
    began = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"^MD5 "):
            load_batch(hostile, PUBLISHED)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 5


@pytest.mark.parametrize("damaged", [b"", b"<html>404</html>", pickle.dumps([1, 2]), array_state(SHAPE_2_3, b"", b"")])
def test_what_is_wrong_is_said_in_one_line(damaged: bytes) -> None:
    with pytest.raises(ValueError) as caught:
        load_batch(damaged, PUBLISHED)
    assert str(caught.value) == (
        f"MD5 {hashlib.md5(damaged).hexdigest()}, published {PUBLISHED}: damaged, incomplete or another version. "
        "Python batches are pickles and read only as published; binary batches need not be"
    )


def test_official_layout_by_hand() -> None:
    """The bytes as Python 2 wrote them, byte strings and `numpy.core.multiarray` included."""
    batch = opened(array_state(SHAPE_2_3, dtype_of(b"u1"), b"abcdef"))
    assert np.array_equal(batch[b"data"], np.frombuffer(b"abcdef", np.uint8).reshape(2, 3))

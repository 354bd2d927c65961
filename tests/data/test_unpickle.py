"""A batch file is data. Whatever a pickle asks for beyond that is refused, and nothing it names is ever called."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from granet.data.unpickle import HostilePickleError, load_batch


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
    with pytest.raises(HostilePickleError, match=r"it asks for .*, which a batch of images does not need"):
        load_batch(hostile)
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
    with pytest.raises(ValueError):
        load_batch(hostile)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a readable pickle"),
        (b"<html>404</html>", "not a readable pickle"),
        (pickle.dumps([1, 2]), "holds a list, expected a dictionary"),
        (pickle.dumps({3: 4}), "has a key of type int"),
        (pickle.dumps({"data": np.zeros(5, np.uint8)}, protocol=4)[:-20], "not a readable pickle"),
        (b"\x80\x02" + b"]" * 5 + b"a" * 4 + b".", "holds a list"),
    ],
)
def test_damaged_files_say_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_batch(data)


def test_deep_nesting_is_no_problem() -> None:
    deep = b"\x80\x02}" + b"]" * 100_000 + b"a" * 99_999
    with pytest.raises(ValueError, match=r"has a key of type|not a readable pickle"):
        load_batch(deep + b"K\x01s.")


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
        # a shape of 50,000 sides of 255 bytes each: their product would take an hour
        array_state(b"(\x8a\xff" + b"\x7f" * 255 + b"q\x00" + b"h\x00" * 50_000 + b"t", dtype_of(b"u1"), b"123456"),
    ],
)
def test_a_small_file_takes_little_memory_and_time(hostile: bytes) -> None:
    began = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            load_batch(hostile)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 20


def test_what_is_wrong_is_said_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^not a readable pickle \(UnpicklingError: .*persistent.*\)$") as caught:
        load_batch(b"\x80\x02}K\x01Qs.")  # pickle's own words about an object of elsewhere take two lines
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64])
def test_honest_batches_of_any_writer_are_read(protocol: int, dtype: Any) -> None:
    array = np.arange(24).reshape(4, 6).astype(dtype)
    batch = load_batch(pickle.dumps({b"data": array, "labels": [3, 1], b"note": b"raw"}, protocol=protocol))
    assert batch["labels"] == [3, 1]
    assert batch["note"] == b"raw"
    assert batch["data"].dtype == dtype
    assert np.array_equal(batch["data"], array)


def test_official_layout_by_hand() -> None:
    """The bytes as Python 2 wrote them, byte strings and `numpy.core.multiarray` included."""
    batch = load_batch(array_state(SHAPE_2_3, dtype_of(b"u1"), b"abcdef"))
    assert np.array_equal(batch["data"], np.frombuffer(b"abcdef", np.uint8).reshape(2, 3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of string escapes, from within pickletools
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 10))
def test_a_corrupted_batch_is_read_or_refused_but_never_breaks(junk: bytes, at: int, cut: int) -> None:
    honest = pickle.dumps({b"data": np.zeros((2, 3), np.uint8), b"labels": [1, 2]}, protocol=2)
    data = honest[:at] + junk + honest[at + cut :]
    with contextlib.suppress(ValueError):
        assert isinstance(load_batch(data), dict)

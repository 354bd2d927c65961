"""Tables that are small in the file and large once decompressed, and other texts that are no table."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import granet
from granet.checkpoint.layout import LARGEST_TABLE

pytestmark = pytest.mark.usefixtures("little_memory")


BOMBS = {
    "nested lists": b"[" * 50_000,
    "nested objects": b'{"a":' * 10_000,
    "long number": b'{"a":' + b"9" * 50_000 + b"}",
    "not JSON": b"\x00" * 64,
    "not text": b'{"\xff\xfe": 1}',
    "a list": b"[]",
    "nothing": b"",
    "a name twice": b'{"conv.bias":{"dtype":"F32","shape":[16]},"conv.bias":{"dtype":"F32","shape":[16]}}',
    "a key twice": b'{"conv.bias":{"dtype":"F32","dtype":"F32","shape":[16]}}',
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_as_header_or_table_is_refused(path: Path, forge: Any, refused: Any, bomb: str) -> None:
    forge(path, change=lambda _: BOMBS[bomb])
    refused("its table (cannot be read as JSON|is not a JSON object)")
    path.write_bytes(struct.pack("<Q", len(BOMBS[bomb])) + BOMBS[bomb] + bytes(100))
    refused("its header (cannot be read as JSON|is not a JSON object)")


def zeros(megabytes: int) -> bytes:
    """That many zero bytes, compressed a thousandfold: one block again and again, so that it is made at once."""
    compressor = zlib.compressobj(9)
    first, block = (compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + block * (megabytes - 1)


COMPRESSED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "more than a gigabyte": (lambda _: zeros(1500), "its table takes more than 2097152 bytes"),
    "too long once compressed": (lambda _: zeros(3000), "must have a row 'table' of at most 2097152 bytes"),
    "one byte too many": (
        lambda text: zlib.compress(text + b" " * (LARGEST_TABLE + 1 - len(text))),
        "its table takes more than 2097152 bytes",
    ),
    "cut short": (lambda text: zlib.compress(text)[:-1], "its table is cut short"),
    "without its end": (lambda text: zlib.compress(text)[:-20], "its table is cut short"),
    "more after it": (lambda text: zlib.compress(text) + b" ", "or longer than what is compressed in it"),
    "twice": (lambda text: zlib.compress(text) * 2, "or longer than what is compressed in it"),
    "wrong sum": (lambda text: zlib.compress(text)[:-4] + bytes(4), "cannot be decompressed"),
    "not compressed": (lambda text: text, "cannot be decompressed"),
    "by gzip": (gzip.compress, "cannot be decompressed"),
    "nothing": (lambda _: b"", "its table is cut short"),
}


@pytest.mark.parametrize("case", COMPRESSED)
def test_a_table_that_cannot_be_decompressed_is_refused(path: Path, forge: Any, refused: Any, case: str) -> None:
    compress, message = COMPRESSED[case]
    forge(path, compress=compress)
    refused(message)


def test_the_largest_table_is_read(path: Path, forge: Any, victim: nn.Module) -> None:
    forge(path, change=lambda text: text + b" " * (LARGEST_TABLE - len(text)))
    granet.load(victim, path)

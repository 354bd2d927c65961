"""Tables that are small in the file and large once parsed. Apart from other bombs: to trace memory takes memory too."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from granet.checkpoint.layout import LARGEST_TABLE

PARTS = {
    "objects": b"{},",
    "lists": b"[],",
    "objects with a number": b'{"a":1},',
    "strings": b'"\\u2603",',
    "nested objects": b'{"":' * 200 + b"0" + b"}" * 200 + b",",
    "nested lists": b"[" * 300 + b"]" * 300 + b",",
}


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_no_table_takes_much_memory_to_parse(path: Path, forge: Any, refused: Any, part: str) -> None:
    """As much JSON as is allowed, of what takes the most objects for its length; the file has some kB.

    Its one letter of four bytes makes all of the text four times as wide in memory.
    """
    start, again, end = '{"a":["\N{GRINNING FACE}",'.encode(), PARTS[part], b"0]}"
    forge(path, change=lambda _: start + again * ((LARGEST_TABLE - len(start + end)) // len(again)) + end)
    assert path.stat().st_size < 20_000
    tracemalloc.start()
    refused("'a': its record")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 51 * LARGEST_TABLE

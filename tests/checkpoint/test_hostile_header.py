"""Hostile headers: a ValueError that names the file, no large allocation, and a model that is as it was.

The files are signed anew after the change, so that the checksum does not hide the check behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import granet
from refusals import refused

pytestmark = pytest.mark.usefixtures("little_memory")


def place(row: dict[str, Any], by: int) -> None:
    """Say that a row begins and ends elsewhere."""
    row["data_offsets"] = [offset + by for offset in row["data_offsets"]]


HEADERS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing row": (lambda h: h.pop("F16"), "'masks': begins at byte"),
    "missing table": (lambda h: h.pop("table"), "its rows should take"),
    "other name for the table": (lambda h: h.update(tables=h.pop("table")), "must have a row 'table'"),
    "overlap": (lambda h: place(h["F16"], -2), "'F16': begins at byte"),
    "gap": (lambda h: place(h["F16"], 2), "'F16': begins at byte"),
    "one place for two": (lambda h: h.update(again=h["masks"]), "begins at byte"),
    "unaligned": (lambda h: place(h["F32"], 2), "'F32': .* cannot be the place"),
    "negative offsets": (lambda h: place(h["I64"], -8), "'I64': data_offsets .* must be two numbers"),
    "fractional offsets": (lambda h: place(h["I64"], 0.0), "'I64': data_offsets .* must be two numbers"),
    "one offset": (lambda h: h["I64"].update(data_offsets=[0]), "'I64': data_offsets"),
    "huge offset": (lambda h: place(h["F16"], 1 << 62), "begins at byte"),
    "wrong dtype": (lambda h: h["I64"].update(dtype="F64"), "'I64': its elements cannot be torch.float64"),
    "smaller dtype": (lambda h: h["I64"].update(dtype="I8"), "'I64': .* cannot be the place of 1 elements of I8"),
    "unknown dtype": (lambda h: h["I64"].update(dtype="F4"), "'I64': dtype 'F4' must be one of"),
    "dtype a list": (lambda h: h["I64"].update(dtype=[]), "'I64': dtype"),
    "masks no bytes": (lambda h: h["masks"].update(dtype="I8"), "'masks': its elements cannot be torch.int8"),
    "table no bytes": (lambda h: h["table"].update(dtype="I8"), "'table': its elements cannot be torch.int8"),
    "huge row": (lambda h: h["I64"].update(shape=[1 << 62]), "'I64': .* cannot be the place"),
    "negative row": (lambda h: h["I64"].update(shape=[-1]), "'I64': shape .* one row"),
    "true as a length": (lambda h: h["I64"].update(shape=[True]), "'I64': shape .* one row"),
    "no row": (lambda h: h["I64"].update(shape=[]), "'I64': shape .* one row"),
    "many sides": (lambda h: h["I64"].update(shape=[1] * 10_000), "'I64': shape .* one row"),
    "entry a number": (lambda h: h.update(I64=3), "'I64': its header entry must have"),
    "extra key": (lambda h: h["I64"].update(more=1), "'I64': its header entry must have"),
    "other name": (lambda h: h.update(stranger=h.pop("masks")), "its row 'masks' has no elements"),
    "long name": (lambda h: h.update({"x" * 10_000: h.pop("masks")}), "its row 'masks' has no elements"),
    "surrogate": (lambda h: h.update({"\ud800": h.pop("masks")}), "its row 'masks' has no elements"),
    "empty row more": (
        lambda h: h.update(I8={"dtype": "I8", "shape": [0], "data_offsets": [0, 0]}),
        "its row 'I8' has 0 elements, its table is about no",
    ),
    "no metadata": (lambda h: h.pop("__metadata__"), "not a packed one of granet.save"),
    "future version": (lambda h: h["__metadata__"].update(granet="2"), "version '2', this granet reads version '1'"),
    "version a number": (lambda h: h["__metadata__"].update(granet=1), "is of version 1, this"),
    "no checksum": (lambda h: h["__metadata__"].pop("sha256"), "checksum None must be"),
    "checksum a number": (lambda h: h["__metadata__"].update(sha256=5), "checksum 5 must be"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_forged_header_is_refused(path: Path, forge: Any, refused: Any, case: str) -> None:
    edit, message = HEADERS[case]
    forge(path, lambda header, _: edit(header))
    refused(message)


def test_bytes_after_the_last_row_are_refused(path: Path, forge: Any, refused: Any) -> None:
    forge(path, payload=b"more")
    refused("but .* are there, so it is damaged")


def test_a_bool_that_is_neither_is_refused(tmp_path: Path, sign: Any) -> None:
    model = nn.Module()
    model.register_buffer("flags", torch.tensor([True, False]))
    granet.save(model, tmp_path / "file")
    content = bytearray((tmp_path / "file").read_bytes())
    flags = 8 + int.from_bytes(content[:8], "little")
    assert content[flags : flags + 2] == b"\x01\x00"
    content[flags] = 2
    (tmp_path / "file").write_bytes(sign(bytes(content)))
    with refused(Path("file")):
        granet.load(model, tmp_path / "file")


@pytest.mark.parametrize("length", [1 << 63, 1 << 40, 1 << 24, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused(path: Path, refused: Any, length: int) -> None:
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
    refused("not a safetensors file, or is cut short")


def test_a_header_too_long_to_parse_is_refused(path: Path, refused: Any) -> None:
    path.write_bytes(struct.pack("<Q", (1 << 16) + 2) + b"{" + b" " * (1 << 16) + b"}")
    refused("its header takes 65538 bytes, one of granet.save at most 65536")


def test_other_files_are_refused(path: Path, refused: Any) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2, 3)}, path)
    refused("not a packed one of granet.save")
    save_file({"a": torch.ones(2, 3)}, path, {"format": "pt"})
    refused("not a packed one of granet.save")
    save_file({f"tensor number {number}": torch.ones(2, 3) for number in range(1000)}, path)
    refused("its header takes .* bytes, one of granet.save at most")
    torch.save({"a": 1}, path)
    refused("not a safetensors file")
    for content in (b"", b"\x00", bytes(8), bytes(1000)):
        path.write_bytes(content)
        refused("")


def test_a_missing_file_is_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        granet.load(nn.Linear(2, 2), tmp_path / "none")

"""Hostile tables of tensors under a valid checksum: refused before anything large is allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from granet.checkpoint import read
from refusals import refused

pytestmark = pytest.mark.usefixtures("little_memory")


TABLES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing tensor": (lambda t: t.pop("conv.bias"), "its row 'F32' has .* elements, its table is about"),
    "no tensor": (lambda t: t.clear(), "its row 'F16' has 7 elements, its table is about no"),
    "one tensor more": (lambda t: t.update(a={"dtype": "I8", "shape": [0]}), "its row 'I8' has no"),
    "stranger": (lambda t: t.update(a={"dtype": "F32", "shape": [0]}), "it has 'a', this model has not"),
    "long name": (lambda t: t.update({"x" * 10**6: t.pop("conv.bias")}), "it has no 'conv.bias'"),
    "surrogate": (lambda t: t.update({"\ud800": t.pop("conv.bias")}), "it has no 'conv.bias'"),
    "record a number": (lambda t: t.update({"conv.bias": 5}), "'conv.bias': its record 5"),
    "record a list": (lambda t: t.update({"conv.bias": []}), r"'conv.bias': its record \[\]"),
    "no shape": (lambda t: t["conv.bias"].pop("shape"), "'conv.bias': its record"),
    "extra key": (lambda t: t["conv.bias"].update(more=1), "'conv.bias': its record"),
    "other dtype": (lambda t: t["norm.num_batches_tracked"].update(dtype="U64"), "its row 'I64' has"),
    "unknown dtype": (lambda t: t["conv.bias"].update(dtype="F4"), "'conv.bias': dtype 'F4' must be one of"),
    "dtype a list": (lambda t: t["conv.bias"].update(dtype=[]), r"'conv.bias': dtype \[\] must be one of"),
    "dtype a row": (lambda t: t["conv.bias"].update(dtype="masks"), "'conv.bias': dtype 'masks' must be one of"),
    "values a row": (lambda t: t["conv.bias"].update(values="masks"), "'conv.bias': F32 .* rounded to 'masks'"),
    "values a list": (lambda t: t["conv.bias"].update(values=[]), "'conv.bias': F32 .* rounded to"),
    "rounded": (lambda t: t["conv.bias"].update(values="BF16"), "its row 'BF16' has no elements, .* about 16"),
    "rounded integers": (lambda t: t["norm.num_batches_tracked"].update(values="BF16"), "I64 .* rounded to 'BF16'"),
    "other shape": (lambda t: t["conv.bias"].update(shape=[4, 4]), r"has shape \(4, 4\), in this model \(16,\)"),
    "huge shape": (lambda t: t["conv.bias"].update(shape=[1 << 62, 1 << 62]), "'conv.bias': .* is not a shape"),
    "huge and empty": (lambda t: t["nothing"].update(shape=[0, 1 << 62]), "'nothing': .* is not a shape"),
    "large shape": (lambda t: t["conv.bias"].update(shape=[1 << 40]), "its row 'F32' has"),
    "many sides": (lambda t: t["conv.bias"].update(shape=[1] * 100_000), "'conv.bias': .* is not a shape"),
    "shape a string": (lambda t: t["conv.bias"].update(shape="4"), "'conv.bias': '4' is not a shape"),
    "mask a string": (lambda t: t["conv.weight"].update(mask="no"), "'conv.weight': mask 'no' must be"),
    "code a number": (lambda t: t["conv.weight"].update(code=3), "'conv.weight': code 3 must be"),
    "code too short": (lambda t: t["conv.weight"]["code"].pop(), "'conv.weight': code .* must be"),
    "k too large": (lambda t: code(t, k=9), "'conv.weight': k=9 must be"),
    "other k": (lambda t: code(t, k=1), "'conv.weight': its mask code"),
    "k for a larger code": (lambda t: code(t, k=8), "'conv.weight': its mask code"),
    "more than all stored": (lambda t: code(t, stored=1153), "'conv.weight': code .* does not fit 1152 elements"),
    "huge code": (lambda t: code(t, length=1 << 40), "'conv.weight': code .* does not fit 1152 elements"),
    "small packed shape": (lambda t: t["conv.weight"].update(shape=[4, 4]), "'conv.weight': code .* does not fit 16"),
    "an element of the next": (
        lambda t: (code(t, stored=lambda n: n + 1), code(t, "encoder.weight", stored=lambda n: n - 1)),
        "'encoder.weight': its mask code does not hold",
    ),
    "a byte of the next": (
        lambda t: (code(t, length=lambda n: n - 1), code(t, "encoder.weight", length=lambda n: n + 1)),
        "'encoder.weight': its mask code does not hold",
    ),
    "no code": (lambda t: t["conv.weight"].pop("code"), "its row 'F32' has"),
    "tied to nothing": (lambda t: t.update(a="b"), "'a': cannot be another name of 'b'"),
    "tied to itself": (lambda t: t.update(a="a"), "'a': cannot be another name of 'a'"),
    "tied to a tied one": (lambda t: t.update(a="decoder.weight"), "'a': cannot be another name of 'decoder.weight'"),
    "tied to one below": (lambda t: t.update({"encoder.bias": "conv.bias"}), "'encoder.bias': cannot be another"),
    "tied, not stored": (lambda t: t.update({"conv.bias": "encoder.bias"}), "its row 'F32' has"),
    "one name more": (lambda t: t.update(a="conv.bias"), "it has 'a', this model has not"),
}


def code(table: dict[str, Any], name: str = "conv.weight", **numbers: Any) -> None:
    """Change numbers of a tensor's code: to others, or by a function of what they are."""
    there = table[name]["code"]
    for place, number in enumerate(("k", "stored", "length")):
        new = numbers.get(number, there[place])
        there[place] = new(there[place]) if callable(new) else new


@pytest.mark.parametrize("case", TABLES)
def test_a_forged_table_is_refused(path: Path, forge: Any, refused: Any, case: str) -> None:
    edit, message = TABLES[case]
    forge(path, lambda _, table: edit(table))
    refused(message)


def numbers_in(node: Any) -> Iterator[tuple[Any, Any]]:
    """Where there are numbers in parsed JSON: the list or dict, and the index or key."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        if isinstance(value, dict | list):
            yield from numbers_in(value)
        elif type(value) is int:
            yield node, key


@pytest.mark.parametrize("number", [-1, 1 << 31, 1 << 48, 1 << 62, 1 << 64, 10**100, 0.0, 1e308, True, None, "1", []])
def test_any_wrong_number_in_the_table_is_refused(path: Path, forge: Any, refused: Any, number: Any) -> None:
    content = path.read_bytes()
    places: list[tuple[Any, Any]] = []
    forge(path, lambda _, table: places.extend(numbers_in(table)))
    for index in range(len(places)):

        def edit(_header: dict[str, Any], table: dict[str, Any], index: int = index) -> None:
            node, key = list(numbers_in(table))[index]
            node[key] = number

        path.write_bytes(content)
        forge(path, edit)
        refused("")
    assert len(places) > 20


@pytest.mark.parametrize("size", [1 << 24, 1 << 40])
def test_a_packed_shape_the_code_does_not_reach_allocates_nothing(path: Path, forge: Any, size: int) -> None:
    forge(path, lambda _, table: table["conv.weight"].update(shape=[size]))
    with refused(Path("some.file"), ..., "'conv.weight'", "1152"):
        read(path)


def test_an_empty_shape_too_large_for_any_tensor_is_refused(path: Path, forge: Any) -> None:
    forge(path, lambda _, table: table["nothing"].update(shape=[1 << 40, 1 << 40, 0]))
    with refused(Path("some.file"), ..., "'nothing'"):
        read(path)


HUGE: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "another model": (
        "U8",
        lambda table: table.update(stranger={"dtype": "U8", "shape": [1 << 40]}),
        "it has 'stranger', this model has not",
    ),
    "a long code": ("masks", lambda table: code(table, length=1 << 40), "'conv.weight': code .* does not fit 1152"),
    "a row of no tensor": ("U8", lambda table: None, f"its row 'U8' has {1 << 40} elements, its table is about no"),
    "a long table": ("table", lambda table: None, "must have a row 'table' of at most 2097152 bytes"),
}


@pytest.mark.parametrize("case", HUGE)
def test_a_huge_file_is_not_read(path: Path, refused: Any, forge: Any, case: str) -> None:
    """A row of a terabyte at the end of the file: a hole, which takes no room on the disk."""
    row, edit, message = HUGE[case]

    forge(path, lambda _, table: edit(table))

    def add(header: dict[str, Any], _table: dict[str, Any]) -> None:
        end = header["table"]["data_offsets"][1]
        if row in header:
            header[f"old {row}"] = header.pop(row)
        header[row] = {"dtype": "U8", "shape": [1 << 40], "data_offsets": [end, end + (1 << 40)]}

    forge(path, add)
    with path.open("r+b") as file:
        try:
            file.truncate(path.stat().st_size + (1 << 40))
        except OSError:
            pytest.skip("no files with holes here")
    refused(message)

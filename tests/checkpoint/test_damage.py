"""Files changed at random: by accident, which the checksum notices, and on purpose, under a valid checksum."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import granet
from examples import examples
from granet.checkpoint import packed_file, read, safetensors_file
from quick import slow_but_for

pytestmark = pytest.mark.usefixtures("little_memory")


def test_a_file_cut_short_is_refused(path: Path, refused: Any) -> None:
    content = path.read_bytes()
    for length in sorted(random.Random(0).sample(range(len(content)), 150)):
        path.write_bytes(content[:length])
        refused("")


def test_every_flipped_byte_is_noticed(path: Path, refused: Any) -> None:
    content = path.read_bytes()
    chance = random.Random(1)
    for place in chance.sample(range(len(content)), 300):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :])
        refused("")


def test_a_table_read_before_the_checksum_must_be_the_one_it_proves(
    path: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*arguments: Any) -> bytes:
        text = zlib.decompress(safetensors_file.read_bytes(*arguments))
        assert b'"mask":true' in text
        return zlib.compress(text.replace(b'"mask":true', b'"mask":false', 1))

    monkeypatch.setattr(packed_file, "read_bytes", other)
    refused("changed while it was read")


def unharmed(path: Path, model: nn.Module, raw: Any) -> None:
    """The file is refused and the model as it was, or it is read."""
    before = raw(model.state_dict())
    try:
        granet.load(model, path)
    except ValueError as error:
        assert "some.file: " in str(error)
        assert raw(model.state_dict()) == before
    try:
        read(path)
    except ValueError as error:
        assert "some.file: " in str(error)


@pytest.mark.parametrize("seed", slow_but_for([0], range(3)))
def test_random_bytes_under_a_valid_checksum_do_no_harm(
    path: Path, victim: nn.Module, sign: Any, raw: Any, seed: int
) -> None:
    content = path.read_bytes()
    chance = random.Random(seed)
    start = 8 + int.from_bytes(content[:8], "little")
    for number in range(100):
        changed = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            where = chance.randrange(8, start) if number % 2 else chance.randrange(len(content))
            changed[where] = chance.randrange(256)
        path.write_bytes(sign(bytes(changed)))
        unharmed(path, victim, raw)


@pytest.mark.parametrize("seed", slow_but_for([0], range(3)))
def test_random_text_in_the_table_does_no_harm(path: Path, victim: nn.Module, forge: Any, raw: Any, seed: int) -> None:
    """The table is decompressed, changed and compressed again. Half of the changes are of digits: most still parse."""
    content = path.read_bytes()
    chance = random.Random(seed)

    def change(text: bytes) -> bytes:
        changed = bytearray(text)
        for _ in range(chance.randint(1, 3)):
            if chance.random() < 0.5:
                where = chance.choice([place for place, byte in enumerate(changed) if chr(byte).isdigit()])
                changed[where : where + 1] = str(chance.randrange(10 ** chance.choice([1, 1, 2, 12, 30]))).encode()
            else:
                begin, end = sorted(chance.sample(range(len(changed)), 2))
                changed[begin : min(end, begin + 9)] = chance.choice([b"", chance.randbytes(2), changed[begin:end]])
        return bytes(changed)

    for _ in range(150):
        path.write_bytes(content)
        forge(path, change=change)
        unharmed(path, victim, raw)


KEYS = ["dtype", "shape", "values", "mask", "code", "a", "conv.weight", "decoder.weight", "F32", "U8", "masks"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 20)
    | st.sampled_from([1 << 31, 1 << 62, 1 << 64, 1e308, "F32", "BF16", "U8", "", "conv.weight", "encoder.weight"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_random_json_under_a_valid_checksum_does_no_harm(
    path: Path, victim: nn.Module, raw: Any, forge: Any, data: st.DataObject
) -> None:
    """Somewhere in the header or the table a value is replaced, removed or renamed."""

    def edit(header: dict[str, Any], table: dict[str, Any]) -> None:
        node: Any = data.draw(st.sampled_from([header, table, table]))
        while True:
            key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
            if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.integers(0, 3)) == 0:
                break
            node = node[key]
        action = data.draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
        if action == "replace":
            node[key] = data.draw(JSON)
        elif action == "remove":
            del node[key]
        elif isinstance(node, dict):
            node[data.draw(st.sampled_from(KEYS))] = node.pop(key)

    content = path.read_bytes()
    try:
        forge(path, edit)
        unharmed(path, victim, raw)
    finally:
        path.write_bytes(content)

"""Damaged and hostile files: a ValueError that names the file, no large allocation, and a model that is as it was.

Most files here are signed anew after the change, so that the checksum does not hide the check behind it.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import granet
from granet.checkpoint import read

resource = pytest.importorskip("resource")
STATM = Path("/proc/self/statm")


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """Nothing here may take more than a gigabyte; the files are of some kB and ask for much more."""
    if not STATM.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(STATM.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def path(tmp_path: Path, make: Any) -> Path:
    """A real file of the model of seed 0."""
    granet.save(tmp_path / "some.file", *make(0))
    return tmp_path / "some.file"


@pytest.fixture
def victim(make: Any) -> nn.Module:
    """A model that the file fits, with other weights."""
    model: nn.Module = make(1)[0]
    return model


@pytest.fixture
def refused(path: Path, victim: nn.Module, raw: Any) -> Callable[[str], None]:
    """Loading the file now gives that error, and the model does not change."""

    before = raw(victim.state_dict())

    def check(message: str) -> None:
        with pytest.raises(ValueError, match=rf"(?s)some\.file: .*{message}") as caught:
            granet.load(path, victim)
        assert len(str(caught.value)) < 500 + len(str(path))
        assert raw(victim.state_dict()) == before

    return check


HEADERS: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = {
    "missing tensor": (lambda h, _: h.pop("conv.bias"), "conv.bias|begins at byte"),
    "overlap": (lambda h, _: h["norm.bias"].update(data_offsets=h["norm.weight"]["data_offsets"]), "begins at byte"),
    "negative offsets": (lambda h, _: h["nothing"].update(data_offsets=[-4, -4]), "'nothing'"),
    "fractional offsets": (lambda h, _: h["nothing"].update(data_offsets=[0.0, 0.0]), "'nothing'"),
    "one offset": (lambda h, _: h["conv.bias"].update(data_offsets=[0]), "'conv.bias'"),
    "wrong dtype": (lambda h, _: h["conv.bias"].update(dtype="I32"), "'conv.bias': is torch.int32"),
    "smaller dtype": (lambda h, _: h["conv.bias"].update(dtype="I8"), "'conv.bias': .* not the 16 bytes of I8"),
    "unknown dtype": (lambda h, _: h["conv.bias"].update(dtype="F4"), "'conv.bias': dtype 'F4' must be one of"),
    "dtype is a list": (lambda h, _: h["conv.bias"].update(dtype=[]), "'conv.bias': dtype"),
    "huge shape": (lambda h, _: h["conv.bias"].update(shape=[1 << 62, 1 << 62]), "'conv.bias': .* not a shape"),
    "huge and empty shape": (lambda h, _: h["nothing"].update(shape=[0, 1 << 62]), "'nothing': .* not a shape"),
    "negative shape": (lambda h, _: h["conv.bias"].update(shape=[-4, -4]), "'conv.bias': .* not a shape"),
    "true as a shape": (lambda h, _: h["norm.num_batches_tracked"].update(shape=[True]), "not a shape"),
    "many sides": (lambda h, _: h["norm.num_batches_tracked"].update(shape=[1] * 100_000), "not a shape"),
    "other shape": (lambda h, _: h["conv.bias"].update(shape=[4, 4]), r"'conv.bias': has shape \(4, 4\), .* \(16,\)"),
    "entry is a number": (lambda h, _: h.update({"conv.bias": 3}), "'conv.bias': its header entry must have"),
    "extra key": (lambda h, _: h["conv.bias"].update(more=1), "'conv.bias': its header entry must have"),
    "no metadata": (lambda h, _: h.pop("__metadata__"), "no metadata"),
    "metadata of numbers": (lambda h, _: h["__metadata__"].update(n=1), "no metadata"),
    "no checksum": (lambda h, _: h["__metadata__"].pop("sha256"), "damaged"),
    "long name": (lambda h, _: h.update({"x" * 10**6: h.pop("conv.bias")}), "it has no 'conv.bias'"),
    "surrogate": (lambda h, _: h.update({"\ud800": h.pop("conv.bias")}), "it has no 'conv.bias'"),
    "other name": (lambda h, _: h.update({"stranger": h.pop("conv.bias")}), "it has no 'conv.bias'"),
    "future version": (lambda _, w: w.update(version=2), "version 2, this granet reads version 1"),
    "no version": (lambda _, w: w.pop("version"), "version None"),
    "no tied": (lambda _, w: w.pop("tied"), "must have tensors and tied"),
    "tensors a list": (lambda _, w: w.update(tensors=[]), "must have tensors and tied"),
    "record a number": (lambda _, w: w["tensors"].update({"conv.weight": 5}), "'conv.weight': its record 5"),
    "record without k": (lambda _, w: w["tensors"]["conv.weight"].pop("k"), "'conv.weight': its record"),
    "k too large": (lambda _, w: w["tensors"]["conv.weight"].update(k=63), "'conv.weight': k=63 must be"),
    "k negative": (lambda _, w: w["tensors"]["conv.weight"].update(k=-1), "'conv.weight': k=-1 must be"),
    "k a float": (lambda _, w: w["tensors"]["conv.weight"].update(k=3.0), "'conv.weight': k=3.0 must be"),
    "other k": (lambda _, w: w["tensors"]["conv.weight"].update(k=1), "'conv.weight': its mask code"),
    "k for a larger code": (lambda _, w: w["tensors"]["conv.weight"].update(k=8), "'conv.weight': its mask code"),
    "packed shape": (lambda _, w: w["tensors"]["conv.weight"].update(shape=[4, 4]), "'conv.weight': .* do not fit"),
    "no packed shape": (lambda _, w: w["tensors"]["conv.weight"].update(shape="4"), "'conv.weight': .* not a shape"),
    "mask a string": (lambda _, w: w["tensors"]["conv.weight"].update(mask="no"), "'conv.weight': its record"),
    "rounded from integers": (
        lambda _, w: w["tensors"]["conv.weight"].update(dtype="I64"),
        "'conv.weight': .* rounded",
    ),
    "rounded from nothing": (lambda _, w: w["tensors"]["conv.weight"].update(dtype="X"), "'conv.weight': its record"),
    "unknown packed": (lambda _, w: w["tensors"].update({"a": {"shape": [1], "k": 0}}), "'a': .* missing"),
    "unknown dense": (lambda _, w: w["tensors"].update({"a": {"mask": True}}), "'a': .* missing"),
    "mask is no code": (lambda h, _: h["conv.weight:mask"].update(dtype="I8"), "'conv.weight': its mask must be"),
    "packed and dense": (lambda h, _: h.update({"conv.weight": h.pop("conv.bias")}), "'conv.weight': .* both"),
    "tied to nothing": (lambda _, w: w["tied"].update(a="b"), "'a': cannot be another name of 'b'"),
    "tied to itself": (lambda _, w: w["tied"].update(a="a"), "'a': cannot be another name of 'a'"),
    "tied to a list": (lambda _, w: w["tied"].update(a=[]), "'a': cannot be another name of"),
    "tied and stored": (lambda _, w: w["tied"].update({"conv.bias": "encoder.bias"}), "'conv.bias': cannot be another"),
    "one name more": (lambda _, w: w["tied"].update(a="conv.bias"), "it has 'a', this model has not"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_forged_header_is_refused(path: Path, forge: Any, refused: Any, case: str) -> None:
    edit, message = HEADERS[case]
    forge(path, edit)
    refused(message)


@pytest.mark.parametrize("size", [1 << 24, 1 << 40])
def test_a_packed_shape_the_code_does_not_reach_allocates_nothing(path: Path, forge: Any, size: int) -> None:
    forge(path, lambda _, layout: layout["tensors"]["conv.weight"].update(shape=[size]))
    with pytest.raises(ValueError, match=r"some\.file: 'conv\.weight': its mask code is of 1152 weights, its shape of"):
        read(path)


def test_an_empty_shape_too_large_for_any_tensor_is_refused(path: Path, forge: Any) -> None:
    forge(path, lambda header, _: header["nothing"].update(shape=[1 << 40, 1 << 40, 0]))
    with pytest.raises(ValueError, match=r"some\.file: 'nothing': .* is not a shape"):
        read(path)


def test_bytes_after_the_last_tensor_are_refused(path: Path, forge: Any, refused: Any) -> None:
    forge(path, lambda _header, _layout: None, payload=b"more")
    refused("but .* are there, so it is damaged")


def test_a_bool_that_is_neither_is_refused(tmp_path: Path, sign: Any) -> None:
    model = nn.Module()
    model.register_buffer("flags", torch.tensor([True, False]))
    granet.save(tmp_path / "file", model)
    content = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(sign(content[:-2] + b"\x02\x00"))
    with pytest.raises(ValueError, match=r"'flags': holds bytes that are neither"):
        granet.load(tmp_path / "file", model)


BOMBS = {
    "nested lists": b"[" * 200_000,
    "nested objects": b'{"a":' * 200_000,
    "long number": b'{"a":' + b"9" * 100_000 + b"}",
    "not JSON": b"\x00" * 64,
    "not text": b'{"\xff\xfe": 1}',
    "a list": b"[]",
    "nothing": b"",
    "a name twice": b'{"__metadata__":{"sha256":"","sha256":""}}',
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_as_header_or_layout_is_refused(path: Path, sign: Any, refused: Any, bomb: str) -> None:
    path.write_bytes(struct.pack("<Q", len(BOMBS[bomb])) + BOMBS[bomb] + bytes(100))
    refused("its header")

    metadata = {"sha256": "0" * 64, "granet": BOMBS[bomb].decode("latin1")}
    header = json.dumps({"__metadata__": metadata}, separators=(",", ":")).encode()
    path.write_bytes(sign(struct.pack("<Q", len(header)) + header))
    refused("its layout|is of version None")


@pytest.mark.parametrize("length", [1 << 63, 1 << 40, 1 << 24, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused(path: Path, refused: Any, length: int) -> None:
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
    refused("not a safetensors file, or is cut short")


def test_a_header_too_long_to_parse_is_refused(path: Path, refused: Any) -> None:
    path.write_bytes(struct.pack("<Q", 1 << 25) + b"{" + b" " * (1 << 25) + b"}")
    refused("not a safetensors file")


def test_a_huge_file_of_another_model_is_not_read(path: Path, refused: Any, forge: Any) -> None:
    def add(header: dict[str, Any], _layout: dict[str, Any]) -> None:
        end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
        header["stranger"] = {"dtype": "U8", "shape": [1 << 40], "data_offsets": [end, end + (1 << 40)]}

    forge(path, add)
    with path.open("r+b") as file:
        try:
            file.truncate(path.stat().st_size + (1 << 40))  # a hole: it takes no room on the disk
        except OSError:
            pytest.skip("no files with holes here")
    refused("it has 'stranger', this model has not")


def test_other_files_are_refused(path: Path, refused: Any) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, path)
    refused("no metadata")
    save_file({"a": torch.ones(2)}, path, {"format": "pt"})
    refused("not a packed one of granet.save")
    torch.save({"a": 1}, path)
    refused("not a safetensors file")
    for content in (b"", b"\x00", bytes(8), bytes(1000)):
        path.write_bytes(content)
        refused("")


def test_a_missing_file_is_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        granet.load(tmp_path / "none", nn.Linear(2, 2))


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


def unharmed(path: Path, model: nn.Module, raw: Any) -> None:
    """The file is refused and the model as it was, or it is read."""
    before = raw(model.state_dict())
    try:
        granet.load(path, model)
    except ValueError as error:
        assert "some.file: " in str(error)
        assert raw(model.state_dict()) == before


@pytest.mark.parametrize("seed", range(3))
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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 20)
    | st.sampled_from([1 << 31, 1 << 62, 1 << 64, 1e308, "F32", "BF16", "U8", "", "conv.weight", "encoder.weight"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["shape", "k", "mask"]), inner),
    max_leaves=5,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_random_json_under_a_valid_checksum_does_no_harm(
    path: Path, victim: nn.Module, raw: Any, forge: Any, data: st.DataObject
) -> None:
    """Somewhere in the header or the layout a value is replaced, removed or renamed."""

    def edit(header: dict[str, Any], layout: dict[str, Any]) -> None:
        node: Any = data.draw(st.sampled_from([header, layout["tensors"], layout["tied"], layout]))
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
            node[data.draw(st.sampled_from(["a", "conv.weight", "conv.weight:values", "k"]))] = node.pop(key)

    content = path.read_bytes()
    try:
        forge(path, edit)
        unharmed(path, victim, raw)
    finally:
        path.write_bytes(content)

"""`.granet` files: what comes back, how small they are, and that nothing damaged or hostile gets through."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import granet
from deployed import as_trained
from granet.deploy.operators import Array, Linear
from granet.deploy.plan import Plan
from granet.deploy.plan_file import load_plan, save_plan

IMAGES = torch.randn(2, 3, 8, 8)


def network() -> granet.deploy.Compiled:
    """A layer of every kind, sparse and dense."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Linear(32, 4, bias=False),
    )  # fmt: skip
    as_trained(model)
    nn.init.normal_(model[4].weight)
    return granet.deploy.compile(model, IMAGES, engine="torch")


@pytest.fixture(scope="module")
def compiled() -> granet.deploy.Compiled:
    return network()


@pytest.fixture(scope="module")
def path(compiled: granet.deploy.Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "model.granet"
    granet.deploy.save(compiled, path)
    return path


def load(path: Path, **options: Any) -> granet.deploy.Compiled:
    return granet.deploy.load(path, engine="torch", **options)


def test_what_is_saved_comes_back(compiled: granet.deploy.Compiled, path: Path, tmp_path: Path) -> None:
    loaded = load(path)
    assert torch.equal(loaded(IMAGES), compiled(IMAGES))
    assert loaded.whole is not None and compiled.whole is not None
    assert loaded.whole.ops == compiled.whole.ops
    granet.deploy.save(loaded, tmp_path / "again.granet")
    assert (tmp_path / "again.granet").read_bytes() == path.read_bytes()
    with pytest.raises(ValueError, match=r"^input 0: shape \[1, 3, 8, 8\]: must be \[2, 3, 8, 8\]"):
        loaded(IMAGES[:1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_are_rounded_if_asked_for(compiled: granet.deploy.Compiled, tmp_path: Path, dtype: torch.dtype) -> None:
    assert compiled.whole is not None
    save_plan(compiled.whole, tmp_path / "model.granet", dtype)
    for found, array in zip(load_plan(tmp_path / "model.granet").arrays, compiled.whole.arrays, strict=True):
        values = torch.tensor(array.dense())
        assert torch.equal(torch.tensor(found.dense()), values.to(dtype).float() if values.ndim > 1 else values)


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(5, 4)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.b(y), self.a(x) + self.b(y)

    inputs = torch.randn(2, 3), torch.randn(2, 5)
    compiled = granet.deploy.compile(Two(), inputs, engine="torch")
    granet.deploy.save(compiled, tmp_path / "model.granet")
    found = load(tmp_path / "model.granet")(*inputs)
    assert all(torch.equal(*pair) for pair in zip(found, compiled(*inputs), strict=True))


@given(st.lists(st.integers(0, 300_000), unique=True, max_size=40))
def test_positions_come_back_however_far_apart(tmp_path_factory: pytest.TempPathFactory, positions: list[int]) -> None:
    path = tmp_path_factory.mktemp("positions") / "model.granet"
    where = np.array(sorted(positions), dtype=np.uint32)
    array = Array((1, 300_001), where, np.ones(len(where), dtype=np.float32))
    save_plan(Plan(((1, 300_001),), (Linear(0, 0),), (1,), (array,)), path)
    assert load_plan(path).arrays[0].positions.tolist() == sorted(positions)  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_sparse_vgg_takes_four_bytes_a_weight(tmp_path: Path) -> None:
    model = as_trained(granet.create_model("vgg19", num_classes=10), 0.98)
    compiled = granet.deploy.compile(model, torch.randn(1, 3, 32, 32), engine="torch")
    granet.deploy.save(compiled, tmp_path / "model.granet", dtype=torch.float16)
    assert (tmp_path / "model.granet").stat().st_size < 1_700_000


def test_a_part_in_pytorch_cannot_be_saved(tmp_path: Path) -> None:
    compiled = granet.deploy.compile(nn.Sequential(nn.Linear(3, 4), nn.GELU()), torch.randn(2, 3), engine="torch")
    with pytest.raises(ValueError, match=r"^compiled: parts of it run in PyTorch \(aten.gelu.default\), which no file"):
        granet.deploy.save(compiled, tmp_path / "model.granet")
    with pytest.raises(ValueError, match=r"^compiled=Linear: must be what granet.deploy.compile gives, or a Plan$"):
        granet.deploy.save(nn.Linear(3, 4), tmp_path / "model.granet")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_values_that_sixteen_bits_cannot_hold(tmp_path: Path) -> None:
    array = Array((1, 2), None, np.array([1e5, 1], dtype=np.float32))
    plan = Plan(((1, 2),), (Linear(0, 0),), (1,), (array,))
    with pytest.raises(ValueError, match=r"^dtype=torch.float16: cannot hold the weights of array 0"):
        granet.deploy.save(plan, tmp_path / "model.granet", dtype=torch.float16)
    with pytest.raises(ValueError, match=r"^dtype=torch.int8: must be torch.float16 or torch.bfloat16, or None"):
        granet.deploy.save(plan, tmp_path / "model.granet", dtype=torch.int8)
    granet.deploy.save(plan, tmp_path / "model.granet", dtype=torch.bfloat16)


# What follows changes files. A change is signed anew where the checksum would hide the check behind it.


def signed(header: dict[str, Any], payload: bytes) -> bytes:
    header["__metadata__"]["sha256"] = "0" * 64
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(8, "little") + text + payload
    return whole.replace(b"0" * 64, hashlib.sha256(whole).hexdigest().encode(), 1)


def parts(whole: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """The header, the plan in it, and the bytes of the rows."""
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["plan"]), whole[8 + length :]


def with_plan(whole: bytes, plan: Any) -> bytes:
    header, _, payload = parts(whole)
    header["__metadata__"]["plan"] = plan if isinstance(plan, str) else json.dumps(plan)
    return signed(header, payload)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no ops": (lambda p: p.pop("ops"), "its plan must have lists of inputs, outputs, ops and arrays"),
    "ops a number": (lambda p: p.update(ops=3), "its plan must have lists"),
    "more": (lambda p: p.update(more=[]), "its plan must have lists"),
    "an unknown op": (lambda p: p["ops"][0].update(op="exec"), "operator 0: .* op must be one of conv, linear"),
    "an op that is none": (lambda p: p["ops"].insert(0, 3), "operator 0: 3: op must be one of"),
    "an unknown field": (lambda p: p["ops"][0].update(__class__=1), "operator 0: '__class__': is no field of conv"),
    "a missing field": (lambda p: p["ops"][0].pop("weight"), "operator 0: weight: is missing"),
    "a fraction": (lambda p: p["ops"][0].update(weight=0.0), r"operator 0: weight 0\.0: must be a whole number"),
    "true as a number": (lambda p: p["ops"][0].update(source=True), "operator 0: source True: must be a whole"),
    "a negative number": (lambda p: p["ops"][0].update(source=-1), "operator 0: source -1: must be a whole number"),
    "three strides": (lambda p: p["ops"][0].update(stride=[1, 1, 1]), r"operator 0: stride .*: must be two whole"),
    "a huge stride": (lambda p: p["ops"][0].update(stride=[1 << 70, 1]), r"operator 0 \(conv\): stride"),
    "no stride": (lambda p: p["ops"][0].update(stride=[0, 1]), r"operator 0 \(conv\): stride \[0, 1\]: must be"),
    "huge padding": (lambda p: p["ops"][0].update(padding=[1 << 40] * 2), r"operator 0 \(conv\): padding"),
    "later value": (lambda p: p["ops"][0].update(source=5), r"operator 0 \(conv\): value 5: must be one"),
    "no such weight": (lambda p: p["ops"][0].update(weight=99), r"operator 0 \(conv\): array 99: must be one of"),
    "another activation": (lambda p: p["ops"][0].update(activation="x"), r"operator 0 \(conv\): activation 'x'"),
    "output of nothing": (lambda p: p.update(outputs=[99]), r"outputs \[99\]: must be different values"),
    "outputs as text": (lambda p: p.update(outputs=["7"]), r"outputs \['7'\]: must be whole numbers"),
    "no outputs": (lambda p: p.update(outputs=[]), "a plan must have inputs, operators and outputs"),
    "a huge input": (lambda p: p.update(inputs=[[1 << 20, 3, 1 << 20, 1]]), "input 0: shape .* from 1 to"),
    "a large input": (lambda p: p.update(inputs=[[16, 3, 4096, 4096]]), r"operator 0 .*|needs \d+ bytes, memory="),
    "no side": (lambda p: p.update(inputs=[[0, 3, 8, 8]]), "input 0: shape"),
    "input as text": (lambda p: p.update(inputs=["2388"]), "input 0: '2388' is not a shape"),
    "an array of another shape": (lambda p: p["arrays"][0].update(shape=[8, 4, 3, 3]), r"operator 0 .conv.: weight"),
    "a huge array": (lambda p: p["arrays"][0].update(shape=[1 << 40, 3, 3, 3]), "array 0: shape .* from 1 to"),
    "a small array": (lambda p: p["arrays"][0].update(shape=[1, 1, 1, 1]), r"position \d+: must be below 1"),
    "fewer elements": (lambda p: p["arrays"][0].update(stored=1), r"array 0: its steps lead to \d+ elements, 1 are"),
    "more steps": (lambda p: p["arrays"][0].update(steps=1 << 40), "array 0: needs .* elements of the row 'steps'"),
    "no steps": (lambda p: p["arrays"][0].pop("steps"), "array 0: stored .* and steps -1: must be whole numbers"),
    "elements of another kind": (lambda p: p["arrays"][0].update(values="U8"), "array 0: values 'U8': must be"),
    "elements of no kind": (lambda p: p["arrays"][0].update(values=[]), r"array 0: values \[\]: must be F32"),
    "of a row that is not there": (lambda p: p["arrays"][0].update(values="F16"), "array 0: needs .* row 'F16'"),
    "an array more": (lambda p: p["arrays"].append({"shape": [2]}), "needs 2 elements of the row 'F32', which has 0"),
    "an array less": (lambda p: p["arrays"].pop(), "has .* elements, the arrays have"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_hostile_plan_is_refused(path: Path, tmp_path: Path, name: str) -> None:
    change, told = CHANGES[name]
    _, plan, _ = parts(path.read_bytes())
    change(plan)
    hostile = tmp_path / "hostile.granet"
    hostile.write_bytes(with_plan(path.read_bytes(), plan))
    with pytest.raises(ValueError, match=told) as error:
        load(hostile)
    assert str(error.value).startswith(f"{hostile}: ") and "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "text", ["", "3", "[]", "{", "[" * 100_000, '{"ops": [], "ops": []}', '{"inputs": NaN}', "\ud800"]
)
def test_what_is_no_plan_is_refused(path: Path, tmp_path: Path, text: str) -> None:
    hostile = tmp_path / "hostile.granet"
    hostile.write_bytes(with_plan(path.read_bytes(), text))
    with pytest.raises(ValueError, match=r"hostile.granet: its plan "):
        load(hostile)


def test_files_of_others_are_refused(path: Path, tmp_path: Path) -> None:
    whole, other = path.read_bytes(), tmp_path / "other.granet"
    header, _, payload = parts(whole)

    def told(content: bytes) -> str:
        other.write_bytes(content)
        with pytest.raises(ValueError) as error:
            load(other)
        return str(error.value).removeprefix(f"{other}: ")

    header["__metadata__"]["granet.deploy"] = "2"
    assert told(signed(header, payload)) == "is of version '2', this granet reads version '1'"
    del header["__metadata__"]["granet.deploy"]
    assert told(signed(header, payload)).startswith("is another safetensors file, not one of granet.deploy.save")
    assert told(b"") == told(b"granet") == "is not a safetensors file, or is cut short"
    assert told(whole[7::-1] + whole[8:]).startswith("is of another byte order")
    assert told((1 << 21).to_bytes(8, "little") + bytes(1 << 22)).startswith("its header takes 2097152 bytes")
    granet.save(nn.Linear(3, 4), other)
    with pytest.raises(ValueError, match=r"granet.load reads those of granet.save$"):
        load(other)
    with pytest.raises(ValueError, match=r"none.granet: must be a file that can be read \(No such file"):
        load(tmp_path / "none.granet")
    with pytest.raises(ValueError, match=r"must be a file that can be read \(Is a directory\)$"):
        load(tmp_path)


def test_memory_that_is_not_allowed(path: Path) -> None:
    need = load(path).whole.memory  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=rf"needs {need} bytes, memory={need - 1} are allowed$"):
        load(path, memory=need - 1)
    load(path, memory=need)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("fuzz") / "fuzz.granet"


def outcome(target: Path, content: bytes) -> Plan | None:
    target.write_bytes(content)
    try:
        return load_plan(target)
    except ValueError as error:
        assert "\n" not in str(error)
        return None


@given(st.data())
def test_any_damage_is_noticed(path: Path, target: Path, data: st.DataObject) -> None:
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    change = data.draw(st.sampled_from(["flip", "insert", "cut", "end"]))
    if change == "flip":
        damaged = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    elif change == "insert":
        damaged = whole[:place] + data.draw(st.binary(min_size=1, max_size=9)) + whole[place:]
    elif change == "cut":
        damaged = whole[:place] + whole[place + data.draw(st.integers(1, 9)) :]
    else:
        damaged = whole[:place]
    assert damaged == whole or outcome(target, damaged) is None


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.sampled_from([1 << 31, 1 << 63, 1 << 64, 1 << 200, 65535]),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-1, 4), max_size=5),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@given(st.data())
def test_any_other_plan_is_sound_or_refused(path: Path, target: Path, data: st.DataObject) -> None:
    """Signed anew, with some parts of the plan exchanged for others."""
    whole = path.read_bytes()
    _, plan, _ = parts(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        part: Any = plan
        while True:
            keys = list(part) if isinstance(part, dict) else list(range(len(part)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(part[key], dict | list) and part[key] and data.draw(st.integers(0, 4)):
                part = part[key]
                continue
            part[key] = data.draw(VALUES)
            break
    found = outcome(target, with_plan(whole, plan))
    if found is not None and found.memory < 1 << 24:
        inputs = [torch.zeros(shape) for shape in found.inputs]
        outputs = load(target)(*inputs)
        for number, output in zip(found.outputs, [outputs] if len(found.outputs) == 1 else outputs, strict=True):
            assert tuple(output.shape) == found.shapes[number]

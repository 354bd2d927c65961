"""What is saved comes back, bit for bit, masks and ties included."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor, nn

import granet
from examples import examples
from granet.checkpoint import read
from granet.checkpoint.safetensors_file import DTYPES
from refusals import refused

DOCS = Path(__file__).parents[2] / "docs" / "file-format.md"
SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple)
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1) if t.ndim > 1 else t,
    "channels last": lambda t: t.to(memory_format=torch.channels_last) if t.ndim == 4 else t,
    "every second": lambda t: torch.stack([t, t], -1)[..., 0],
    "no step along sides of length 1": lambda t: t.as_strided(
        t.shape, [0 if side == 1 else step for side, step in zip(t.shape, t.stride(), strict=True)]
    ),
}


class Holder(nn.Module):
    """One tensor, parameter or buffer."""

    def __init__(self, tensor: Tensor, *, parameter: bool = False) -> None:
        super().__init__()
        if parameter:
            self.tensor = nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
        else:
            self.register_buffer("tensor", tensor)


@settings(max_examples=examples(100))
@given(SHAPES, st.sampled_from(sorted(DTYPES)), st.sampled_from(sorted(LAYOUTS)), st.data())
def test_any_tensor_comes_back(shape: tuple[int, ...], dtype_name: str, layout: str, data: st.DataObject) -> None:
    dtype = DTYPES[dtype_name]
    density = data.draw(st.sampled_from([0.0, 0.01, 0.1, 0.6, 1.0]), "density")
    masked = data.draw(st.booleans(), "masked")
    random = np.random.default_rng(data.draw(st.integers(0, 10**6), "seed"))
    numel = math.prod(shape)
    active = random.random(numel) < density
    elements = random.integers(0, 2 if dtype_name == "BOOL" else 256, (numel, dtype.itemsize), dtype=np.uint8)
    elements[~active] = 0
    tensor = LAYOUTS[layout](torch.from_numpy(elements).reshape(-1).view(dtype).view(shape))
    masks = {"tensor": torch.from_numpy(active).view(shape)} if masked else {}
    saved = Holder(tensor, parameter=data.draw(st.booleans(), "parameter"))
    other = Holder(LAYOUTS[layout](torch.ones(shape).to(dtype)))
    strides = other.state_dict()["tensor"].stride()
    with TemporaryDirectory() as folder:
        path = Path(folder, "file")
        granet.save(saved, path, masks=masks)
        returned = granet.load(other, path)
        state, _ = read(path)
    for back in (other.state_dict()["tensor"], state["tensor"]):
        assert (back.dtype, back.shape) == (dtype, shape)
        row = back.clone(memory_format=torch.contiguous_format).view(-1)
        assert row.view(torch.uint8).numpy().tobytes() == elements.tobytes()
    assert other.state_dict()["tensor"].stride() == strides
    assert returned.keys() == masks.keys()
    assert all(np.array_equal(mask.numpy().reshape(-1), active) for mask in returned.values())


@pytest.mark.parametrize("masked", [True, False])
def test_a_model_comes_back(tmp_path: Path, make: Any, raw: Any, masked: bool) -> None:
    (model, sparsifier), (other, _) = make(0), make(1)
    masks = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    expected = raw(model.state_dict())
    granet.save(model, tmp_path / "file", sparsifier if masked else None)
    returned = granet.load(other, tmp_path / "file")
    assert raw(model.state_dict()) == expected
    assert raw(other.state_dict()) == expected
    assert raw(returned) == (raw(masks) if masked else {})
    assert other.decoder.weight is other.encoder.weight
    assert other.conv.weight.is_contiguous(memory_format=torch.channels_last)


def test_files_are_packed_on_the_host_whatever_the_default_device(tmp_path: Path, make: Any, raw: Any) -> None:
    (model, sparsifier), (other, _) = make(0), make(1)
    granet.save(model, tmp_path / "file", sparsifier)
    with torch.device("meta"):
        granet.save(model, tmp_path / "again", sparsifier)
        returned = granet.load(other, tmp_path / "again")
        state, _ = read(tmp_path / "again")
    assert (tmp_path / "file").read_bytes() == (tmp_path / "again").read_bytes()
    assert raw(other.state_dict()) == raw(state) == raw(model.state_dict())
    assert raw(returned) == raw(sparsifier.masks)


@pytest.fixture(scope="module")
def read_packed() -> Callable[[Path], tuple[dict[str, Any], dict[str, Any]]]:
    """The reader in the documentation."""
    (source,) = re.findall(r"```python\n(import json.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    code: dict[str, Any] = {}
    exec(source, code)
    reader: Callable[[Path], tuple[dict[str, Any], dict[str, Any]]] = code["read_packed"]
    return reader


def test_the_reader_in_the_documentation_reads(tmp_path: Path, make: Any, read_packed: Any) -> None:
    model, sparsifier = make()
    for dtype in (None, torch.bfloat16):
        granet.save(model, tmp_path / "file", sparsifier, dtype=dtype)
        state, masks = read_packed(tmp_path / "file")
        expected = {
            name: tensor.to(dtype).to(tensor.dtype) if dtype and tensor.ndim > 1 else tensor
            for name, tensor in model.state_dict().items()
        }
        assert state.keys() == expected.keys() and masks.keys() == sparsifier.masks.keys()
        for name, tensor in expected.items():
            assert state[name].dtype == tensor.numpy().dtype
            assert np.array_equal(state[name], tensor.numpy())
        for name, mask in sparsifier.masks.items():
            assert np.array_equal(masks[name], mask.numpy())


@pytest.mark.parametrize("name", DTYPES)
def test_the_reader_in_the_documentation_reads_every_dtype(tmp_path: Path, read_packed: Any, name: str) -> None:
    tensor = torch.zeros(20, 32, dtype=DTYPES[name])  # most is zero, so a code says where the rest is
    tensor[:3] = torch.arange(96).view(3, 32).to(tensor.dtype)
    granet.save(Holder(tensor), tmp_path / "file")
    state, _ = read_packed(tmp_path / "file")
    if name == "BF16":
        tensor = tensor.float()
    elif name.startswith("F8"):
        tensor = tensor.view(torch.uint8)
    assert state["tensor"].dtype == tensor.numpy().dtype
    assert np.array_equal(state["tensor"], tensor.numpy())


def test_active_zeros_stay_active(tmp_path: Path, make: Any) -> None:
    (model, sparsifier), (other, _) = make(0), make(1)
    expected = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    with torch.no_grad():
        model.conv.weight.zero_()
    granet.save(model, tmp_path / "file", sparsifier)
    masks = granet.load(other, tmp_path / "file")
    assert not other.conv.weight.any()
    assert all(torch.equal(masks[name], mask) for name, mask in expected.items())


def test_special_values_survive_without_masks(tmp_path: Path) -> None:
    weight = torch.zeros(50, 40)
    weight[0, :5] = torch.tensor([-0.0, math.nan, math.inf, -math.inf, 1e-45])
    model, other = nn.Linear(40, 50), nn.Linear(40, 50)
    model.weight.data = weight
    granet.save(model, tmp_path / "file")
    granet.load(other, tmp_path / "file")
    assert other.weight.data.view(torch.int32).tolist() == weight.view(torch.int32).tolist()
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.get_tensor("F32").shape == (5 + len(model.bias),)


def test_tied_weights_are_stored_once(tmp_path: Path, make: Any) -> None:
    model, sparsifier = make()
    granet.save(model, tmp_path / "file", masks={"decoder.weight": sparsifier.masks["encoder.weight"]})
    state, masks = read(tmp_path / "file")
    assert state["decoder.weight"] is state["encoder.weight"]
    assert list(masks) == ["encoder.weight"]
    assert all(value.untyped_storage().nbytes() == value.nbytes for value in state.values())  # none holds the file
    header = int.from_bytes((tmp_path / "file").read_bytes()[:8], "little")
    assert header % 8 == 0  # so that the elements of every row are aligned where the file is mapped


def test_a_file_of_tied_weights_fits_an_untied_model_and_not_the_reverse(tmp_path: Path, make: Any, raw: Any) -> None:
    (tied, _), (untied, _) = make(0), make(1)
    untied.decoder.weight = nn.Parameter(torch.randn(40, 24))
    granet.save(untied, tmp_path / "untied")
    before = raw(tied.state_dict())
    with refused(Path("untied"), ..., "'decoder.weight'", "'encoder.weight'"):
        granet.load(tied, tmp_path / "untied")
    assert raw(tied.state_dict()) == before
    granet.save(tied, tmp_path / "tied")
    granet.load(untied, tmp_path / "tied")
    assert raw(untied.state_dict()) == before


class Two(nn.Module):
    def __init__(self, left: Tensor, right: Tensor) -> None:
        super().__init__()
        self.register_buffer("left", left)
        self.register_buffer("right", right)


WHOLE = torch.arange(1.0, 10.0).view(3, 3)


@pytest.mark.parametrize("view", [WHOLE[1:], WHOLE[:2], WHOLE.T, WHOLE.view(torch.int32)])
def test_views_of_one_storage_are_two_tensors(tmp_path: Path, view: Tensor) -> None:
    granet.save(Two(WHOLE, view), tmp_path / "file")
    granet.load(other := Two(torch.zeros(3, 3), torch.zeros_like(view)), tmp_path / "file")
    assert torch.equal(other.left, WHOLE) and torch.equal(other.right, view)


def test_lazy_conjugates_and_negatives_are_stored_as_their_values(tmp_path: Path) -> None:
    conjugate = torch.tensor([1 + 2j, 3 - 4j]).conj()
    granet.save(Two(conjugate, conjugate.imag), tmp_path / "file")
    state, _ = read(tmp_path / "file")
    assert state["left"].tolist() == [1 - 2j, 3 + 4j] and state["right"].tolist() == [-2.0, 4.0]


def test_a_tensor_and_its_lazy_conjugate_or_negative_are_not_tied(tmp_path: Path) -> None:
    one = torch.tensor([1 + 2j, 3 - 4j])
    for left, right in ((one, one.conj()), (one.conj().imag, one.imag)):
        granet.save(Two(left, right), tmp_path / "file")
        state, _ = read(tmp_path / "file")
        assert torch.equal(state["left"], left) and torch.equal(state["right"], right)


def test_what_is_one_tensor_in_the_model_must_be_the_same_in_every_bit(tmp_path: Path) -> None:
    one = torch.zeros(3)
    granet.save(Two(torch.tensor([math.nan, 0, 1]), torch.tensor([math.nan, 0, 1])), tmp_path / "file")
    granet.load(Two(one, one), tmp_path / "file")
    assert one.isnan().tolist() == [True, False, False]
    granet.save(Two(torch.tensor([0.0, 0, 1]), torch.tensor([-0.0, 0, 1])), tmp_path / "file")
    with pytest.raises(ValueError, match=r"'right' and 'left' differ, but are one tensor in the model"):
        granet.load(Two(one, one), tmp_path / "file")


def test_empty_tensors_are_not_tied(tmp_path: Path) -> None:
    model = nn.Module()
    masks = {}
    for name in ("left", "right"):
        model.register_buffer(name, torch.empty(0, 2))
        masks[name] = torch.empty(0, 2, dtype=torch.bool)
    granet.save(model, tmp_path / "file", masks=masks)
    assert granet.load(model, tmp_path / "file").keys() == masks.keys()


def test_a_compiled_model_has_plain_names(tmp_path: Path, make: Any, raw: Any) -> None:
    (model, sparsifier), (other, _) = make(0), make(1)
    for dtype in (torch.bfloat16, None):
        granet.save(model, tmp_path / "plain", sparsifier, dtype=dtype)
        granet.save(torch.compile(model), tmp_path / "compiled", sparsifier, dtype=dtype)
        assert (tmp_path / "plain").read_bytes() == (tmp_path / "compiled").read_bytes()
    granet.load(torch.compile(other), tmp_path / "plain")
    assert raw(other.state_dict()) == raw(model.state_dict())


def test_bfloat16_rounds_weights_and_nothing_else(tmp_path: Path, make: Any, raw: Any) -> None:
    (model, sparsifier), (other, _) = make(0), make(1)
    with torch.no_grad():
        model.conv.weight[sparsifier.masks["conv.weight"]] *= 1e-44  # rounds to zero, but stays active
    expected = {
        name: tensor.to(torch.bfloat16).to(tensor.dtype) if tensor.ndim > 1 else tensor
        for name, tensor in model.state_dict().items()
    }
    granet.save(model, tmp_path / "file", sparsifier, dtype=torch.bfloat16)
    masks = granet.load(other, tmp_path / "file")
    assert raw(other.state_dict()) == raw(expected)
    assert raw(masks) == raw(sparsifier.masks)
    with safe_open(tmp_path / "file", "pt") as file:
        rounded = file.get_tensor("BF16")
        assert rounded.dtype == torch.bfloat16
        assert len(rounded) == sum(int(mask.sum()) for mask in masks.values())


def test_weights_that_are_as_short_as_bfloat16_keep_every_bit(tmp_path: Path, raw: Any) -> None:
    model, other = nn.Linear(24, 40).half(), nn.Linear(24, 40).half()
    granet.save(model, tmp_path / "file", dtype=torch.bfloat16)
    granet.load(other, tmp_path / "file")
    assert raw(other.state_dict()) == raw(model.state_dict())


def test_a_dense_layer_with_a_mask_needs_no_code(tmp_path: Path) -> None:
    model = nn.Linear(30, 20)
    granet.save(model, tmp_path / "file", masks={"weight": torch.ones(20, 30, dtype=torch.bool)})
    masks = granet.load(nn.Linear(30, 20), tmp_path / "file")
    assert masks["weight"].shape == (20, 30) and bool(masks["weight"].all())
    with safe_open(tmp_path / "file", "pt") as file:
        assert sorted(file.keys()) == ["F32", "table"]


def test_the_same_model_gives_the_same_bytes(tmp_path: Path, make: Any) -> None:
    for name in ("first", "second"):
        model, sparsifier = make(3)
        granet.save(model, str(tmp_path / name), sparsifier)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()

"""What `save` and `load` refuse, and that a failed save leaves the file of before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import nn

import granet
from granet.checkpoint import layout
from granet.checkpoint.safetensors_file import DTYPES


class Extra(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"a": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


def buffered(tensor: torch.Tensor) -> nn.Module:
    module = nn.Module()
    module.register_buffer("table", tensor)
    return module


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Extra(2, 2), r"^model: '_extra_state' is a dict"),
        (nn.LazyLinear(3), r"^model: 'weight' has no shape yet"),
        (nn.Linear(2, 2, device="meta"), r"^model: 'weight' is on the meta device"),
        (buffered(torch.eye(3).to_sparse()), r"^model: 'table' is a torch.sparse_coo tensor"),
        (
            buffered(torch.ones(2, dtype=torch.complex128)),
            r"^model: 'table' is torch.complex128; a packed file holds BOOL",
        ),
        (3, r"^model=int: must be a torch.nn.Module"),
    ],
    ids=["extra state", "lazy", "meta", "sparse", "complex128", "no module"],
)
def test_a_model_that_no_file_can_hold_is_refused(tmp_path: Path, model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        granet.save(model, tmp_path / "file")
    assert not list(tmp_path.iterdir())


MASK = torch.ones(3, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": torch.float16}, r"^dtype=torch.float16: must be torch.bfloat16, or None"),
        ({"masks": [MASK]}, r"^masks=list: must map parameter names to masks"),
        ({"masks": {"wait": MASK}}, r"^masks\['wait'\]: the model has no weight of that name"),
        (
            {"masks": {"weight": MASK.float()}},
            r"^masks\['weight'\]=torch.float32 \(3, 4\): must be a bool tensor",
        ),
        (
            {"masks": {"weight": MASK.T}},
            r"^masks\['weight'\]=torch.bool \(4, 3\): must be .* shape \(3, 4\)",
        ),
        ({"masks": {"weight": 1}}, r"^masks\['weight'\]=int: must be a bool tensor of shape \(3, 4\)"),
        ({"masks": {"weight": MASK.to("meta")}}, r"^masks\['weight'\]: is on the meta device"),
        ({"masks": {"weight": ~MASK}}, r"^masks\['weight'\]: its weight is not zero everywhere outside"),
        (
            {"sparsifier": {"weight": MASK}},
            r"^sparsifier=dict: must be what granet.sparsify returned; masks alone .* masks=",
        ),
        ({"sparsifier": 1}, r"^sparsifier=int: must be what granet.sparsify returned$"),
        ({"sparsifier": 1, "masks": {}}, r"^masks: must be left out"),
        ({"masks": {"weight": MASK, "_orig_mod.weight": MASK}}, r"^masks\['_orig_mod.weight'\]: .* a mask already"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        granet.save(nn.Linear(4, 3), tmp_path / "file", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["file", Path("file")])
def test_the_model_comes_first(path: Path | str) -> None:
    with pytest.raises(ValueError, match=r"^model='file': .* first, granet\.save\(model, path, sparsifier\)$"):
        granet.save(path, nn.Linear(4, 3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^model='file': .* first, granet\.load\(model, path\)$"):
        granet.load(path, nn.Linear(4, 3))  # type: ignore[arg-type]


def test_a_nan_outside_the_mask_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    nn.init.constant_(model.weight, float("nan"))
    with pytest.raises(ValueError, match="not zero everywhere outside"):
        granet.save(model, tmp_path / "file", masks={"weight": ~MASK})


def test_a_training_whose_weights_are_not_sparse_yet_is_told_what_to_do(tmp_path: Path) -> None:
    """As those of vd before its end, and weights that were loaded since the last mask update."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.VD(log_sigma2=-1.0), total_steps=9)
    with pytest.raises(ValueError, match=r"^masks\['weight'\]: .* outside the mask; .*, and finish\(\) for vd$"):
        granet.save(model, tmp_path / "file", sparsifier)
    sparsifier.finish()
    granet.save(model, tmp_path / "file", sparsifier)


def test_a_moving_average_is_told_to_be_masked(tmp_path: Path) -> None:
    model = nn.Linear(8, 8)
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), granet.Static(sparsity=0.5))
    with pytest.raises(ValueError, match=r"outside the mask; sparsifier\.apply_to\(model\) makes it so"):
        granet.save(average.module, tmp_path / "file", sparsifier)
    average.module.weight.detach().mul_(sparsifier.masks["weight"])
    granet.save(average.module, tmp_path / "file", sparsifier)


def test_a_tensor_may_be_named_like_a_row(tmp_path: Path) -> None:
    names = ("F32", "table", "masks", "__metadata__", "a b\n\u2603")
    model, other = nn.Module(), nn.Module()
    for number, name in enumerate(names, 1):
        model.register_buffer(name, torch.full((number,), float(number)))
        other.register_buffer(name, torch.zeros(number))
    granet.save(model, tmp_path / "file")
    granet.load(other, tmp_path / "file")
    for name in names:
        assert torch.equal(getattr(other, name), getattr(model, name))


def test_a_model_of_too_many_tensors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "LARGEST_TABLE", 50)
    with pytest.raises(ValueError, match=r"^model: the names of its 2 tensors take \d+ bytes, over 50$"):
        granet.save(nn.Linear(4, 3), tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_names_that_are_one_without_the_compilers_part_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    model.add_module("_orig_mod", nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"^model: two tensors are called 'weight'$"):
        granet.save(model, tmp_path / "file")


def test_a_model_of_no_tensors_comes_back(tmp_path: Path) -> None:
    granet.save(nn.Identity(), tmp_path / "file")
    assert granet.load(nn.Identity(), tmp_path / "file") == {}


def test_an_expanded_tensor_is_saved_but_not_loaded_to(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), buffered(torch.ones(1).expand(5)))
    granet.save(model, tmp_path / "file")
    before = model[0].weight.clone()
    nn.init.zeros_(model[0].weight)
    with pytest.raises(ValueError, match=r"'1.table' is expanded"):
        granet.load(model, tmp_path / "file")
    assert not model[0].weight.any()
    granet.load(model := nn.Sequential(nn.Linear(2, 2), buffered(torch.zeros(5))), tmp_path / "file")
    assert torch.equal(model[0].weight, before) and model[1].table.tolist() == [1] * 5


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Linear(4, 3, bias=False), r"file: is of another model: it has 'bias', this model has not"),
        (nn.Sequential(nn.Linear(4, 3)), r"file: is of another model: it has no '0.weight' and 1 more"),
        (nn.Linear(3, 4), r"file: 'weight': has shape \(3, 4\), in this model \(4, 3\)"),
        (nn.Linear(4, 3).bfloat16(), r"file: 'weight': is torch.float32, in this model torch.bfloat16; convert"),
    ],
)
def test_another_model_is_refused(tmp_path: Path, other: nn.Module, message: str, raw: Any) -> None:
    granet.save(nn.Linear(4, 3), tmp_path / "file")
    before = raw(other.state_dict())
    with pytest.raises(ValueError, match=message):
        granet.load(other, tmp_path / "file")
    assert raw(other.state_dict()) == before


def test_a_save_that_fails_leaves_the_file_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    granet.save(nn.Linear(4, 3), tmp_path / "file")
    before = (tmp_path / "file").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        granet.save(nn.Linear(4, 3), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_masks_may_have_been_made_by_an_earlier_load(tmp_path: Path, make: Any) -> None:
    model, sparsifier = make()
    granet.save(model, tmp_path / "first", sparsifier)
    masks = granet.load(model, tmp_path / "first")
    granet.save(model, tmp_path / "second", masks=masks)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_the_safetensors_library_reads_every_dtype(tmp_path: Path) -> None:
    model = nn.Module()
    for name, dtype in DTYPES.items():
        model.register_buffer(name, torch.tensor([[1, 0], [1, 1]]).to(dtype))
    granet.save(model, tmp_path / "file")
    with safe_open(tmp_path / "file", "pt") as file:
        assert sorted(file.keys()) == sorted([*DTYPES, "table"])
        assert file.metadata()["granet"] == "1"
        for name, tensor in model.state_dict().items():
            row = file.get_tensor(name)
            assert row.dtype == tensor.dtype
            assert row.view(torch.uint8).tolist() == tensor.view(-1).view(torch.uint8).tolist()


def test_loading_needs_no_other_part_of_granet(tmp_path: Path, make: Any) -> None:
    model, sparsifier = make()
    granet.save(model, tmp_path / "file", sparsifier)
    program = f"""
import sys
from granet.checkpoint import read
state, masks = read({str(tmp_path / "file")!r})
print(len(state), len(masks), *sorted(name for name in sys.modules if name.startswith("granet.")))
print(*(name for name in ("safetensors", "rich", "tyro", "matplotlib", "triton") if name in sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    names = ("layout", "mask_codes", "model_state", "packed_file", "safetensors_file")
    parts = ["checkpoint", *(f"checkpoint.{name}" for name in names)]
    modules = [*parts, "error_line", "files", "given_masks", "names", "tensors", "tensors.packing"]
    assert ran.stdout.splitlines() == [" ".join(["12", "2", *(f"granet.{name}" for name in modules)]), ""]

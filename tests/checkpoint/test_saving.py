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
from refusals import refused


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
    ("model", "tells"),
    [
        (Extra(2, 2), "'_extra_state'"),
        (nn.LazyLinear(3), "'weight'"),
        (nn.Linear(2, 2, device="meta"), "'weight'"),
        (buffered(torch.eye(3).to_sparse()), "torch.sparse_coo"),
        (buffered(torch.ones(2, dtype=torch.complex128)), "torch.complex128"),
    ],
    ids=["extra state", "lazy", "meta", "sparse", "complex128"],
)
def test_a_model_that_no_file_can_hold_is_refused(tmp_path: Path, model: Any, tells: str) -> None:
    with refused("model", ..., tells, unchanged=(tmp_path,)):
        granet.save(model, tmp_path / "file")


MASK = torch.ones(3, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"dtype": torch.float16}, "dtype=torch.float16"),
        ({"masks": [MASK]}, "masks=list"),
        ({"masks": {"wait": MASK}}, "masks['wait']"),
        ({"masks": {"weight": MASK.float()}}, "masks['weight']=torch.float32 (3, 4)"),
        ({"masks": {"weight": MASK.T}}, "masks['weight']=torch.bool (4, 3)"),
        ({"masks": {"weight": 1}}, "masks['weight']=int"),
        ({"masks": {"weight": MASK.to("meta")}}, "masks['weight']"),
        ({"masks": {"weight": ~MASK}}, "masks['weight']"),
        ({"masks": {"weight": MASK, "_orig_mod.weight": MASK}}, "masks['_orig_mod.weight']"),
        ({"sparsifier": {"weight": MASK}}, "sparsifier=dict"),
        ({"sparsifier": 1}, "sparsifier=int"),
        ({"sparsifier": 1, "masks": {}}, "masks"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any], subject: str) -> None:
    model = nn.Linear(4, 3)
    with refused(subject, unchanged=(model, tmp_path)):
        granet.save(model, tmp_path / "file", **options)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with refused("model", 3, unchanged=(tmp_path,)):
        granet.save(3, tmp_path / "file")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["file", Path("file")])
def test_the_model_comes_first(path: Path | str) -> None:
    with refused("model", "file", "granet.save(model, path, sparsifier)"):
        granet.save(path, nn.Linear(4, 3))  # type: ignore[arg-type]
    with refused("model", "file", "granet.load(model, path)"):
        granet.load(path, nn.Linear(4, 3))  # type: ignore[arg-type]


def test_a_nan_outside_the_mask_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    nn.init.constant_(model.weight, float("nan"))
    with refused("masks['weight']"):
        granet.save(model, tmp_path / "file", masks={"weight": ~MASK})


def test_a_training_whose_weights_are_not_sparse_yet_is_told_what_to_do(tmp_path: Path) -> None:
    """As those of vd before its end, and weights that were loaded since the last mask update."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.VD(log_sigma2=-1.0), total_steps=9)
    with refused("masks['weight']", ..., "finish()"):
        granet.save(model, tmp_path / "file", sparsifier)
    sparsifier.finish()
    granet.save(model, tmp_path / "file", sparsifier)


def test_a_moving_average_is_told_to_be_masked(tmp_path: Path) -> None:
    model = nn.Linear(8, 8)
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), granet.Static(sparsity=0.5))
    with refused("masks['weight']", ..., "sparsifier.apply_to(model)"):
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
    with refused("model", ..., "50 at most", unchanged=(tmp_path,)):
        granet.save(nn.Linear(4, 3), tmp_path / "file")


def test_names_that_are_one_without_the_compilers_part_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    model.add_module("_orig_mod", nn.Linear(4, 3))
    with refused("model", ..., "'weight'"):
        granet.save(model, tmp_path / "file")


def test_a_model_of_no_tensors_comes_back(tmp_path: Path) -> None:
    granet.save(nn.Identity(), tmp_path / "file")
    assert granet.load(nn.Identity(), tmp_path / "file") == {}


def test_an_expanded_tensor_is_saved_but_not_loaded_to(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), buffered(torch.ones(1).expand(5)))
    granet.save(model, tmp_path / "file")
    before = model[0].weight.clone()
    nn.init.zeros_(model[0].weight)
    with refused("model", ..., "'1.table'"):
        granet.load(model, tmp_path / "file")
    assert not model[0].weight.any()
    granet.load(model := nn.Sequential(nn.Linear(2, 2), buffered(torch.zeros(5))), tmp_path / "file")
    assert torch.equal(model[0].weight, before) and model[1].table.tolist() == [1] * 5


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Linear(4, 3, bias=False), (Path("file"), ..., "'bias'")),
        (nn.Sequential(nn.Linear(4, 3)), (Path("file"), ..., "'0.weight'")),
        (nn.Linear(3, 4), (Path("file"), ..., "'weight'", "(3, 4)", "(4, 3)")),
        (nn.Linear(4, 3).bfloat16(), (Path("file"), ..., "'weight'", "32", "16")),
    ],
)
def test_another_model_is_refused(tmp_path: Path, other: nn.Module, message: tuple[Any, ...]) -> None:
    granet.save(nn.Linear(4, 3), tmp_path / "file")
    with refused(*message, unchanged=(other, tmp_path)):
        granet.load(other, tmp_path / "file")


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


@pytest.mark.slow
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

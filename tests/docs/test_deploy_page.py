"""The page about deployment: its code runs, and what it says of engines and limits is so."""

from __future__ import annotations

import inspect
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

import granet
from granet.deploy.engines import _SECONDS, ENGINES, HALVES, TOLERANCE
from granet.deploy.halves import LARGEST_ERROR, LARGEST_SUM
from granet.deploy.measured import DEFAULT_FOLDER, FOLDER_VARIABLE

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
CODE, EXPORTS, SEMI_STRUCTURED = re.findall(r"```python\n(.*?)```", PAGE.split("## Runtime")[1], re.DOTALL)


def test_the_code_compiles_saves_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr("granet.deploy.engines.ENGINES", {"torch": ENGINES["torch"]})
    model, images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.randn(2, 3, 8, 8)
    names = {"granet": granet, "torch": torch, "model": model, "images": images}
    exec(CODE, names)
    expected = model.eval()(images)
    assert torch.allclose(names["outputs"], expected, atol=1e-5)
    assert torch.allclose(names["fast"](images), expected, atol=1e-2)


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime", "openvino"))), reason="needs granet[deploy]"
)
def test_the_code_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.randn(2, 3, 8, 8)
    exec(EXPORTS, {"granet": granet, "model": model, "images": images})
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.xml", "model.bin", "model.pt2"}


def test_the_call_for_2_to_4_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="NVIDIA GPU"):
        exec(SEMI_STRUCTURED, {"granet": granet, "torch": torch, "model": nn.Linear(8, 8), "images": torch.randn(2, 8)})


def test_engines_and_limits_are_those_of_the_code() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE.split("### What runs where")[1], re.MULTILINE) == list(ENGINES)
    assert f"for {_SECONDS} s each" in PAGE
    assert TOLERANCE == 1e-4 and "by more than 1e-4 is not used" in PAGE
    assert f"reach {LARGEST_SUM:.0f} together" in PAGE
    assert LARGEST_ERROR == 5e-3 and "by 5e-3 (root mean square" in PAGE
    assert all(f"`{name}`" in PAGE for name in HALVES)
    assert f"`{DEFAULT_FOLDER}`" in PAGE and f"`{FOLDER_VARIABLE}`" in PAGE
    assert inspect.signature(granet.deploy.load).parameters["memory"].default == 4 << 30

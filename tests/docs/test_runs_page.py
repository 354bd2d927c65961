"""The page about runs: its code for loading the network of a run works on one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import granet
from granet.data import load
from granet.training import Recipe, Run
from granet.training.rundir import run_name

PAGE = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
(CODE,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "load_file" in code)


@pytest.mark.slow
def test_the_network_of_a_run_has_its_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(Recipe(epochs=2), load("digits"), torch.device("cpu"), tmp_path / "runs")
    assert list(run.epochs())
    (folder,) = (tmp_path / "runs").iterdir()
    (path,) = re.findall(r"runs/digits-\S+(?=/model)", CODE)
    assert path == f"runs/{run_name(Recipe())}"  # of `granet train`
    monkeypatch.chdir(tmp_path)
    exec(CODE.replace(path, f"runs/{folder.name}"), {})
    accuracy = json.loads((folder / "summary.json").read_text())["test_accuracy"]
    assert capsys.readouterr().out == f"tensor({accuracy:.4f})\n"
    state, _ = granet.checkpoint.read(tmp_path / "packed.safetensors")
    assert state
    with pytest.raises(ValueError, match=r"not a packed one of granet\.save; safetensors\.torch\.load_file reads it"):
        granet.load(granet.create_model("digits_net", num_classes=10), folder / "model.safetensors")

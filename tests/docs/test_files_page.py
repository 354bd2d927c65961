"""The page about packed files: its code saves and loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import granet

PAGE = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_saves_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = nn.Linear(20, 10)
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), granet.Static(sparsity=0.5))
    names = {"granet": granet, "model": model, "sparsifier": sparsifier}
    weight = model.weight.detach().clone()
    exec(CODE, names)
    assert torch.equal(names["masks"]["weight"], sparsifier.masks["weight"])
    assert torch.equal(names["state_dict"]["weight"], weight)

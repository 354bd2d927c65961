"""The code of the README runs as it is printed, and prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import granet

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
FIRST, WITH = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[:2]
HELD = "is sparsified already"


def test_the_first_loop_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(FIRST, names := {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", FIRST, re.MULTILINE) == ["0.9"]
    assert FIRST.index("optimizer.step()") < FIRST.index("sparsifier.finish()") < FIRST.index("print(")
    again = names["model"], names["optimizer"], names["method"]
    with pytest.raises(ValueError, match=HELD):  # finish() leaves the hooks on
        granet.sparsify(*again, total_steps=200)


@pytest.mark.parametrize("fails", [False, True])
def test_a_with_finishes_and_takes_the_hooks_off(fails: bool) -> None:
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.VD(sparsity=0.5, examples=20)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
        if fails:
            raise KeyError("in the loop")

    names = {"granet": granet, "model": model, "optimizer": optimizer, "method": method, "train": train}
    if fails:
        with pytest.raises(KeyError, match="in the loop"):
            exec(WITH, names)
    else:
        exec(WITH, names)
        assert names["sparsifier"].sparsity == 0.5
        assert sum(int((layer.weight == 0).sum()) for layer in names["sparsifier"].layers.values()) == 450
    assert names["sparsifier"].hidden is None
    granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))

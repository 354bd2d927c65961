"""The page about observers: its observer of one's own works, in a loop, in a run that is resumed, and in a command."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import granet
from granet.data import load
from granet.observers import Observers
from granet.training import Recipe, Training

PAGE = (Path(__file__).parents[2] / "docs" / "observers.md").read_text(encoding="utf-8")
(CODE,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class Churn" in code]


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module that the page asks for, found as in the current folder."""
    (tmp_path / "mine.py").write_text(CODE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("mine", None)


def test_in_a_loop_it_sees_what_changed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.RigL(sparsity=0.8, every=3), total_steps=12)
    observers = Observers(["mine:Churn"], model, sparsifier)
    before = [mask.clone() for mask in sparsifier.masks.values()]
    shares = []
    for step in range(1, 8):
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
        observers.after_step()
        optimizer.zero_grad()
        if step % 3 == 0:
            after = [mask.clone() for mask in sparsifier.masks.values()]
            shares.append(sum(int((a != b).sum()) for a, b in zip(before, after, strict=True)) / 900)
            before = after
    assert shares[0] > 0
    assert observers.epoch() == {"Churn.share": pytest.approx(sum(shares) / 2)}
    assert observers.epoch() == {}


@pytest.mark.slow
def test_in_a_run_that_is_resumed_it_saw_the_same() -> None:
    recipe = Recipe(epochs=2, batch_size=512, milestones=(), observe=("mine:Churn",))
    data = load("digits")
    whole = Training(recipe, data)
    states: list[dict[str, object]] = []
    list(whole.epochs(lambda: states.append(copy.deepcopy(whole.state()))))
    assert whole.records[0].observed and "Churn.share" in whole.records[0].observed
    resumed = Training(recipe, data, state=states[0])
    list(resumed.epochs())
    assert [record.observed for record in resumed.records] == [record.observed for record in whole.records]
    assert recipe.dense_twin().observe == ()


@pytest.mark.slow
def test_a_command_finds_it(tmp_path: Path) -> None:
    pytest.importorskip("tyro")
    from granet.cli import main

    main(["train", "--epochs", "1", "--every", "5", "--observe", "mine:Churn", "--no-dense-twin", "--out", "runs"])
    (metrics,) = (tmp_path / "runs").glob("*/metrics.jsonl")
    assert "Churn.share" in json.loads(metrics.read_text())["observed"]

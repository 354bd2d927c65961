"""The page about FLOPs: its code runs, its ratios are what it says, and its commands work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

import granet
from granet.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "flops.md").read_text(encoding="utf-8")
FORWARD, TRAINING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def test_the_code_counts_one_pass(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    masks = granet.prune(model, granet.OneShot(sparsity=0.5))
    names = {"model": model, "example_input": torch.randn(1, 3, 8, 8), "sparsifier": None}
    exec(FORWARD, names)
    report: granet.flop_counting.FlopsReport = names["report"]
    assert 0 < report.ratio < 1
    assert report == granet.flops(model, names["example_input"], masks=masks)  # neither counts what is not zero
    assert report.including("average pooling").dense - report.dense == 2 * 8 * 6 * 6
    assert capsys.readouterr().out == f"{report}\n"


def test_the_code_counts_a_training() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {"granet": granet, "model": model, "optimizer": optimizer, "method": granet.Static(sparsity=0.5)}
    names["example_input"] = torch.randn(1, 3, 8, 8)
    before, after = TRAINING.split("...\n")
    exec(before, names)
    model(names["example_input"]).square().mean().backward()
    optimizer.step()
    exec(after, names)
    cost = names["cost"]
    assert cost.steps == 1
    assert 0 < cost.ratio < 1
    assert cost.relative_to(31_280) == 2 * cost.relative_to(62_560)


@pytest.mark.parametrize("command", COMMANDS.splitlines())
def test_the_commands_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "granet"
    main(arguments)
    assert "of the dense FLOPs" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == set(re.findall(r"\w+\.(?:csv|json)", command))

"""The code of the README runs as it is printed, and prints what its comments say."""

from __future__ import annotations

import copy
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

import granet
from granet.deploy.engines import ENGINES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST, WITH, ASKED, PRUNED, FAST = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
HELD = "is sparsified already"


def test_the_first_loop_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(FIRST, names := {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", FIRST, re.MULTILINE) == ["0.9"]
    assert FIRST.index("optimizer.step()") < FIRST.index("sparsifier.finish()") < FIRST.index("print(")
    again = names["model"], names["optimizer"], names["method"]
    with pytest.raises(ValueError, match=HELD):  # finish() leaves the hooks on
        granet.sparsify(*again, total_steps=200)


def test_what_can_be_asked_of_a_sparsifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(FIRST, names := {})
    average = copy.deepcopy(names["model"])
    nn.init.ones_(average[0].weight)
    names |= {"example_input": torch.randn(1, 20), "average": average}
    exec(ASKED, names)
    assert int((average[0].weight == 0).sum()) == int((~names["sparsifier"].masks["0.weight"]).sum()) > 0
    fresh = copy.deepcopy(names["model"])
    granet.load(fresh, tmp_path / "model.safetensors")
    assert names["sparsifier"].check(fresh)
    with pytest.warns(UserWarning, match="sparse already"):
        granet.sparsify(names["model"], names["optimizer"], names["method"], total_steps=200)  # its hooks are off


def test_pruning_without_training() -> None:
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))
    names = {"granet": granet, "model": model, "loader": [(torch.randn(8, 20), torch.randint(8, (8,)))] * 4}
    exec(PRUNED, names)
    zeros = sum(int((~mask).sum()) for mask in names["masks"].values())
    assert zeros == (20 * 32 + 32 * 8) // 2


def test_a_trained_network_is_compiled_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRANET_DEPLOY_CACHE", str(tmp_path))
    monkeypatch.setattr("granet.deploy.engines.ENGINES", {"torch": ENGINES["torch"]})
    model, images = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8)), torch.randn(4, 20)
    exec(FAST, names := {"granet": granet, "model": model, "images": images})
    assert torch.allclose(names["outputs"], model(images), atol=1e-5)
    assert torch.equal(granet.deploy.load("model.granet")(images), names["outputs"])


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 220
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "results" / "README.md"):
        for address in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert "://" in address or (page.parent / address).exists(), f"{page.name}: {address}"


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore:granet. .* sparse already")
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
    with pytest.warns(UserWarning, match="sparse already") if not fails else nullcontext():
        granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))

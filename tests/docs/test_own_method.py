"""The page about methods of one's own: its code runs, prints what it says, and its names exist."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import granet
from granet import distributions, schedules, scores
from granet.methods import registry
from granet.net import SparseNet
from granet.studies.spec import read_spec
from granet.weights import SparseLayer

PAGE = (Path(__file__).parents[2] / "docs" / "own-method.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The page's names after all its code ran, in order; what it registers is forgotten after the test."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    script = tmp_path / "page.py"
    script.write_text(CODE, encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        names = runpy.run_path(str(script))
    return names | {"printed": printed.getvalue().splitlines()}


def test_the_code_prints_what_the_comments_say(page: dict[str, Any]) -> None:
    said = re.findall(r"^print\(.*\)  # (.*)$", CODE, re.MULTILINE)
    assert len(said) == CODE.count("print(") == 7
    assert page["printed"] == said


def test_the_registered_method_is_in_the_list(page: dict[str, Any]) -> None:
    info = granet.list_methods()[-1]
    assert (info.name, info.when, info.distribution) == ("taylor", "during, from sparse", "ERK")
    assert info.summary == "Drop what the loss would miss least, grow as many at random, ever fewer."


def test_the_method_drops_the_smallest_product_of_weight_and_gradient(page: dict[str, Any]) -> None:
    """One update by hand, of a layer of which half is active; at first nothing is pruned that is not regrown."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = page["Taylor"](sparsity=0.5, every=1, regrow=0.5)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=100)
    before = sparsifier.masks["0.weight"].clone()
    model(torch.randn(16, 8)).square().sum().backward()
    optimizer.step()
    product = (model[0].weight * model[0].weight.grad).abs()
    after = sparsifier.masks["0.weight"]
    largest = product[before].sort(descending=True).values
    dropped = 16  # ceil(0.495 * 32)
    assert after.sum() == before.sum() == 32
    assert after[before & (product >= largest[31 - dropped])].all()
    assert (after & ~before).any()


@pytest.mark.parametrize("pattern", ["2x2", "filter", "fan-in"])
def test_patterns_hold_as_the_page_promises(page: dict[str, Any], pattern: str) -> None:
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = page["Taylor"](sparsity=0.5, pattern=pattern)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=40, exclude=("2.weight",))
    for _ in range(40):
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sum(record.regrown for record in sparsifier.history) > 0
    for mask in sparsifier.masks.values():
        if pattern == "fan-in":
            assert len(set(mask.sum(1).tolist())) == 1
        else:
            rows, columns = (2, 2) if pattern == "2x2" else (1, mask.shape[1])
            blocks = mask.view(mask.shape[0] // rows, rows, mask.shape[1] // columns, columns)
            assert torch.equal(blocks.all(3).all(1), blocks.any(3).any(1))


def test_memory_is_saved_and_loaded_and_left_alone_by_bad_gradients(page: dict[str, Any]) -> None:
    def sparsify() -> tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]:
        model = nn.Sequential(nn.Linear(6, 5))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return (
            model,
            optimizer,
            granet.sparsify(model, optimizer, page["Patient"](sparsity=0.5, every=1), total_steps=4),
        )

    model, optimizer, sparsifier = sparsify()
    size = sparsifier.layers["0.weight"].memory["size"]
    first = model[0].weight.detach().abs()
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    kept = sparsifier.masks["0.weight"]
    moved = first - size  # half of what |w| changed by; pruned weights had their value then
    assert torch.allclose(size[kept], (first + model[0].weight.detach().abs())[kept] / 2)
    assert moved.abs().max() > 0

    _, _, other = sparsify()
    other.load_state_dict(sparsifier.state_dict())
    assert torch.equal(other.layers["0.weight"].memory["size"], size)

    before = size.clone()
    model[0].weight.grad.fill_(float("nan"))
    with pytest.warns(UserWarning, match="not finite"):
        optimizer.step()
    assert torch.equal(size, before)


def test_the_grid_of_the_page_suits_the_embedded_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.setitem(sys.modules, "taylor", types.ModuleType("taylor"))  # forgotten after the test
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], vars(sys.modules["taylor"]))
    (tmp_path / "compare.toml").write_text(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0], encoding="utf-8")
    recipes = read_spec(tmp_path / "compare.toml").recipes
    assert len(recipes) == 15
    for recipe in recipes:
        method = granet.create_method(recipe.method, **recipe.method_fields)
        assert method.updates(granet.Clock(0, recipe.epochs * 19, 19))  # ValueError where its times are too long


def test_all_that_the_page_needs_of_methods_is_in_one_place() -> None:
    imported = set(re.findall(r"from granet\.methods(\S*) import", CODE))
    assert imported == {""}
    bases = PAGE[PAGE.index("Bases to start from") : PAGE.index("## Moves")]
    named = set(re.findall(r"`([A-Z]\w+)`", bases))
    assert named == {"Gradual", "SparseToSparse", "GrowsByGradient"}
    assert named | {"register", "periodic", "Momentum", "MeanGradient"} <= set(granet.methods.__all__)
    assert all(hasattr(granet.methods, name) for name in granet.methods.__all__)


def test_every_name_on_the_page_exists() -> None:
    set_later = {"memory", "layers", "counts", "accept", "probe"}
    net_names = set(re.findall(r"`net\.(\w+)", PAGE)) - set_later
    assert len(net_names) >= 12 and all(hasattr(SparseNet, name) for name in net_names)
    assert all(hasattr(granet.Clock(0), name) for name in ("step", "steps", "total"))
    members = re.findall(r"^\| `(\w+)(?:\(.*?\))?` \|", PAGE, re.MULTILINE)
    assert len(members) == 14 and all(hasattr(granet.Method, name) for name in members)
    score_section = PAGE[PAGE.index("## Scores") : PAGE.index("## Distributions")]
    named = set(re.findall(r"`(\w+)`", score_section))
    layer_names = {"weight", "mask", "memory", "name", "index", "seed"}
    assert named - layer_names == {
        "magnitude", "lamp", "gradient", "momentum", "random", "random_elsewhere", "given", "in_order",
    }  # fmt: skip
    assert all(hasattr(scores, name) for name in named - layer_names)
    assert all(f"`{name}" in PAGE and hasattr(schedules, name) for name in ("cubic", "cosine"))
    assert "`granet.distributions.distribution(name)`" in PAGE and hasattr(distributions, "distribution")
    layer = SparseLayer.of("w", nn.Parameter(torch.ones(2, 2)), 0, 0)
    assert all(hasattr(layer, name) for name in layer_names | {"gradient"})

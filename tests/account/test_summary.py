"""What a sparsifier says about itself: as text, as a table, as HTML, as a figure."""

import re

import pytest
import torch
from torch import nn

import granet


@pytest.fixture
def sparsifier() -> granet.Sparsifier:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 10), nn.Flatten(), nn.Linear(30, 24), nn.ReLU(), nn.Linear(24, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    method = granet.GMP(sparsity=0.9, prune_end="75%", every=2)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=1200)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randint(0, 50, (8, 3))).square().mean().backward()
        optimizer.step()
    return sparsifier


def test_the_text(sparsifier: granet.Sparsifier) -> None:
    method, step, sparsity, coverage, thinnest = repr(sparsifier).splitlines()
    assert method.startswith("GMP(") and "sparsity=0.9" in method
    assert step == "  step: 4 of 1,200"
    told = re.fullmatch(r"  sparsity: ([\d.]+), asked for ([\d.]+), in the end 0\.9000", sparsity)
    assert told is not None
    assert float(told[1]) == pytest.approx(sparsifier.sparsity, abs=1e-4)
    assert float(told[2]) == pytest.approx(sparsifier.target_sparsity, abs=1e-4)
    parameters = 500 + 720 + 24 + 144 + 6
    assert coverage == f"  coverage: {864 / parameters:.1%} of 1,394 parameters; outside: 0.weight (embedding, 35.9%)"
    active = sparsifier.active
    first = min(active, key=lambda name: active[name] / sparsifier.layers[name].numel)
    assert thinnest.startswith(f"  thinnest layers: {first} {active[first]} of {sparsifier.layers[first].numel}")


def test_the_table_is_counted(sparsifier: granet.Sparsifier) -> None:
    for row, (name, layer) in zip(sparsifier.table(), sparsifier.layers.items(), strict=True):
        assert row == {
            "name": name,
            "shape": tuple(layer.weight.shape),
            "numel": layer.numel,
            "active": int(layer.mask.sum()),
            "sparsity": layer.sparsity,
        }


def test_a_method_without_a_target() -> None:
    model = nn.Linear(6, 4)
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters()), granet.STR(), total_steps=5)
    assert "asked for" not in repr(sparsifier)


def test_html_escapes_names() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("<b>", nn.Linear(6, 4))

    model = Odd()
    html = granet.sparsify(model, torch.optim.SGD(model.parameters()), granet.Static(sparsity=0.5))._repr_html_()
    assert "&lt;b&gt;.weight" in html and "<b>.weight" not in html


def test_the_figure(sparsifier: granet.Sparsifier) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    axes = sparsifier.plot()
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == [1 - row["sparsity"] for row in sparsifier.table()]
    (inner,) = axes.child_axes
    assert list(inner.lines[0].get_ydata()) == [record.achieved for record in sparsifier.history]
    assert sparsifier.plot(axes) is axes

"""With an example a model is exported: it tells what a trace tells, and of more models."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import granet
from nets import CHANNELS
from quick import slow_but_for

Kit = SimpleNamespace


def held(model: nn.Module, exclude: str, example: object) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What is in use after pruning, and what is left of the model."""
    masks = granet.prune(model, granet.OneShot(sparsity=0.5, pattern="filter"), exclude=(exclude,), example=example)
    return masks, model.state_dict()


@pytest.mark.parametrize("name", slow_but_for(["residual"], CHANNELS))
def test_it_finds_what_a_trace_finds(kit: Kit, name: str) -> None:
    exclude = CHANNELS[name][1]
    traced, before = held(kit.make(name), exclude, None)
    exported, after = held(kit.make(name), exclude, kit.images(2))
    assert traced.keys() == exported.keys()
    assert all(torch.equal(mask, exported[name]) for name, mask in traced.items())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert any(not mask.all() for layer, mask in exported.items() if layer.endswith("bias"))


class Stubborn(nn.Module):
    """Which a trace cannot follow: its forward decides by the shape of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b, self.fc = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] != 3:
            raise ValueError("must be in colour")
        return self.fc(F.relu(self.b(F.relu(self.norm(self.a(x))))).mean((2, 3)))


def test_a_model_that_cannot_be_traced(kit: Kit) -> None:
    torch.manual_seed(0)
    model = Stubborn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.Static(sparsity=0.5, pattern="filter")
    sparsifier = granet.sparsify(model, optimizer, method, exclude=("fc.weight",), example=kit.images(2))
    for _ in range(3):
        optimizer.zero_grad()
        kit.loss(model, kit.images()).backward()
        optimizer.step()
    alive = {name: mask.flatten(1).any(1) for name, mask in sparsifier.masks.items()}
    assert torch.equal(sparsifier.in_use["norm.bias"], alive["a.weight"])
    assert torch.equal(sparsifier.in_use["b.weight"][alive["b.weight"]][0].flatten(1).any(1), alive["a.weight"])
    assert torch.equal(sparsifier.in_use["fc.weight"].any(0), alive["b.weight"])
    assert not model.norm.running_mean[~alive["a.weight"]].any()
    small = granet.compact(model.eval(), kit.images(2), tell=None)
    assert small.a.weight.shape[0] == int(alive["a.weight"].sum())


def test_an_example_that_does_not_fit(kit: Kit) -> None:
    with pytest.raises(
        ValueError, match=r"^model: Stubborn cannot be exported: must be in colour \(in forward, test_exported.py:"
    ):
        held(Stubborn(), "fc.weight", torch.zeros(2, 1, 8, 8))

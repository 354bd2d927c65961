"""What a layer sees: its inputs, and whether batch norm and ReLU follow, however they are written."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from granet.methods.sis.layer_inputs import watch
from granet.probe import Probe
from granet.weights import find_layers


class Net(nn.Module):
    """Layers followed by all kinds of things."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)
        self.norm, self.act = nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.function = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(4)
        self.residual = nn.Conv2d(4, 4, 1)
        self.method = nn.Linear(16, 8)
        self.bounded = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.module(x)))
        x = functional.relu(self.norm2(self.function(x)))
        x = torch.relu(x + self.residual(x)).flatten(1)
        x = self.method(input=x).relu_()
        out: Tensor = self.last(torch.tanh(self.bounded(x)))
        return out


def trained() -> dict[str, Tensor]:
    """A state in which no batch norm is the identity."""
    torch.manual_seed(1)
    return {name: torch.rand_like(value) + 0.1 if value.is_floating_point() else value
            for name, value in Net().state_dict().items()}  # fmt: skip


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


class InPlace(nn.Module):
    """Outputs that something else is written to before the next layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.norm = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)
        self.rectified, self.late = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.first(x).relu_()
        x = self.norm(self.block(shortcut))
        x += shortcut
        out: Tensor = self.late(torch.relu_(self.rectified(torch.relu(x))))
        return out


def test_outputs_that_were_written_to_are_nobodys() -> None:
    model = InPlace()
    probe = Probe("trial", model, find_layers(model), [(torch.randn(5, 2, 4, 4), None)])
    seen = watch(probe, model.state_dict(), probe.draw(1))
    follows = {name.split(".")[0]: (one.normalise is not None, one.rectified) for name, (one,) in seen.items()}
    assert follows == {"first": (False, True), "block": (True, False), "rectified": (False, True)}


def test_inputs_and_what_follows(model: Net) -> None:
    batches = [(torch.randn(5, 2, 4, 4), None), (torch.randn(3, 2, 4, 4), None)]
    probe = Probe("trial", model, find_layers(model), batches)
    state = trained()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = watch(probe, state, probe.draw(2))
    follows = {name.split(".")[0]: (one.normalise is not None, one.rectified) for name, (one, _) in seen.items()}
    assert follows == {
        "module": (True, True),
        "function": (True, True),
        "residual": (False, False),
        "method": (False, True),
        "bounded": (False, False),
        "last": (False, False),
    }
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert model.training

    twin = Net()
    twin.load_state_dict(state)
    twin.eval()
    for i, (x, _) in enumerate(batches):
        z = twin.norm(twin.module(x))
        assert torch.equal(seen["module.weight"][i].call.inputs, x)
        assert torch.allclose(seen["module.weight"][i].preactivation(twin.module.weight), z)
        z2 = twin.norm2(twin.function(z.relu()))
        one = seen["function.weight"][i]
        assert torch.allclose(one.call.inputs, z.relu())
        assert torch.allclose(one.preactivation(twin.function.weight), z2)
        assert torch.allclose(seen["last.weight"][i].preactivation(twin.last.weight), twin(x))
    other, last = torch.randn_like(twin.last.weight), seen["last.weight"][0]
    assert torch.allclose(last.preactivation(other), last.call.inputs @ other.T + twin.last.bias)


class Shared(nn.Module):
    """A weight in two layers, one of which is called twice, each time with something else after it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.norm = nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.one(self.norm(self.other(self.one(x).relu())))
        return out


def test_every_call_of_every_layer_with_a_weight_is_seen_with_what_follows_it() -> None:
    model, x = Shared().eval(), torch.randn(5, 3)
    probe = Probe("trial", model, find_layers(model), [(x, None)])
    first, second, third = watch(probe, model.state_dict(), probe.draw(1))["one.weight"]
    assert [one.normalise is not None for one in (first, second, third)] == [False, True, False]
    assert [one.rectified for one in (first, second, third)] == [True, False, False]
    assert torch.allclose(second.call.inputs, model.one(x).relu())
    assert torch.allclose(second.preactivation(model.one.weight), third.call.inputs)
    assert torch.allclose(third.preactivation(model.one.weight), model(x))


def test_hooks_are_gone_when_the_model_fails(model: Net) -> None:
    probe = Probe("trial", model, find_layers(model), [(torch.randn(5, 3, 4, 4), None)])
    with pytest.raises(RuntimeError):
        watch(probe, trained(), probe.draw(1))
    assert not any(module._forward_hooks for module in model.modules())
    assert model.training

"""What a module's class says about its parameters, what users add to it, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from granet.weights import Orientation, find_layers, kinds, weights_in
from refusals import refused


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kinds, "_KINDS", dict(kinds._KINDS))
    yield


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(3, 4, 8))
        self.down = nn.Parameter(torch.randn(3, 8, 4))


UP = Orientation(experts=0, out=2, inputs=1)


def test_a_class_that_a_user_registers() -> None:
    granet.register_weights(Mixture, {"up": UP})
    (layer,) = find_layers(nn.ModuleDict({"mix": Mixture()}))
    assert layer.name == "mix.up"
    assert layer.identity.orientation == UP
    assert layer.identity.neurons == (24, 4)


def test_its_full_name_is_enough_and_subclasses_follow() -> None:
    granet.register_weights(f"{__name__}.Mix*", lambda module: {"down": UP, "missing": UP})

    class Own(Mixture):
        pass

    assert weights_in(Own()) == {"down": UP}


def test_a_class_may_be_left_dense() -> None:
    class Head(nn.Linear):
        pass

    granet.register_weights(Head, {})
    assert [layer.name for layer in find_layers(nn.Sequential(nn.Linear(3, 3), Head(3, 2)))] == ["0.weight"]


def test_what_a_user_says_last_counts_whatever_is_known_already() -> None:
    class OwnExperts(Mixture):
        __module__ = "transformers.models.own"

    granet.register_weights(f"{OwnExperts.__module__}.{OwnExperts.__qualname__}", {"down": UP})
    assert weights_in(OwnExperts()) == {"down": UP}
    granet.register_weights("torch.nn.modules.linear.*", {})
    assert weights_in(nn.Linear(3, 3)) == {}
    granet.register_weights(nn.Linear, {"weight": Orientation()})  # known before, and anew
    assert weights_in(nn.Linear(3, 3)) == {"weight": Orientation()}


@pytest.mark.parametrize(
    ("weights", "tells"),
    [
        ({"up": Orientation(experts=0)}, "Mixture.up of shape [3, 4, 8] does not fit: out=0, inputs=1, experts=0"),
        ({"up": Orientation(2, 3)}, "Mixture.up of shape [3, 4, 8] does not fit: out=2, inputs=3"),
        ({"up": Orientation(parts=2)}, "Mixture.up of shape [3, 4, 8] does not fit: parts=2"),
        ({"up": 1}, "Mixture.up=1: must be a granet.Orientation"),
        (lambda module: None, "gave None for Mixture"),
    ],
)
def test_axes_that_do_not_fit_the_weight_are_refused(weights: Any, tells: str) -> None:
    granet.register_weights(Mixture, weights)
    model = nn.ModuleDict({"mix": Mixture(), "fc": nn.Linear(2, 2)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused("register_weights", ..., tells, unchanged=(model, optimizer)):
        granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))


@pytest.mark.parametrize(
    ("module_type", "weights", "field", "value"),
    [
        (3, {}, "module_type", 3),
        (int, {}, "module_type", int),
        (nn.Linear, ["weight"], "weights", ["weight"]),
    ],
)
def test_what_is_no_kind_is_refused(module_type: Any, weights: Any, field: str, value: object) -> None:
    with refused(field, value):
        granet.register_weights(module_type, weights)


def test_query_key_and_value_are_three_matrices() -> None:
    layers = {layer.name: layer.identity for layer in find_layers(nn.MultiheadAttention(8, 2))}
    assert layers["in_proj_weight"].matrices == ((8, 8),) * 3
    apart = [layer.name for layer in find_layers(nn.MultiheadAttention(8, 2, kdim=4, vdim=6))]
    assert apart == ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"]


@pytest.mark.filterwarnings("ignore:granet")
def test_neurons_of_an_attention_go_with_their_biases() -> None:
    model = nn.MultiheadAttention(8, 2)
    nn.init.ones_(model.in_proj_bias)
    masks = granet.prune(model, granet.OneShot(sparsity=0.5, pattern="filter"))
    assert torch.equal(model.in_proj_bias != 0, masks["in_proj_weight"].any(1))


class Adapted(nn.Module):
    """Named as the library for adapters names them."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Linear(8, 8)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(8, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 8, bias=False)})


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 2)
        self.shared_expert = nn.ModuleDict({"gate_proj": nn.Linear(8, 8)})
        self.shared_expert_gate = nn.Linear(8, 1)
        self.experts = nn.ModuleList(nn.ModuleDict({"gate": nn.Linear(8, 8)}) for _ in range(2))


def test_adapters_and_routers_stay_dense_unless_they_are_asked_for() -> None:
    model = nn.ModuleDict({"q": Adapted(), "mlp": Block(), "gate": nn.Linear(8, 8)})
    found = [layer.name for layer in find_layers(model)]
    assert found == [
        "q.base_layer.weight",
        "mlp.shared_expert.gate_proj.weight",
        "mlp.experts.0.gate.weight",
        "mlp.experts.1.gate.weight",
        "gate.weight",
    ]
    more = {layer.name for layer in find_layers(model, also=("q.lora_*", "mlp.gate.weight"))}
    assert more - set(found) == {"q.lora_A.default.weight", "q.lora_B.default.weight", "mlp.gate.weight"}


def test_the_methods_that_look_at_inputs_take_whatever_multiplies_them() -> None:
    class InputsFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(6, 8)), nn.Parameter(torch.randn(8))

        def forward(self, input: Tensor) -> Tensor:
            return torch.addmm(self.bias, input, self.weight)

    granet.register_weights(InputsFirst, {"weight": Orientation(1, 0)})
    model = nn.Sequential(InputsFirst(), nn.ReLU(), nn.Linear(8, 4))
    x = torch.randn(5, 6)
    granet.prune(model, granet.SIS(sparsity=0.5, batch_count=1), batches=[(x, None)])
    zeros = sum(int((weight == 0).sum()) for weight in (model[0].weight, model[2].weight))
    assert zeros == 40
    model = nn.Sequential(InputsFirst(), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.VD(), total_steps=2)
    model(x).square().sum().backward()
    optimizer.step()
    assert sparsifier.layers["0.weight"].hidden is not None

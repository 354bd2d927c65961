"""Looking at a model before its first step: the right derivatives, and nothing left behind."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint

import granet
from granet.model_inputs import each_tensor
from granet.probe import Probe
from granet.weights import find_layers
from quick import slow_but_for
from refusals import refused

BATCHES = [(torch.randn(12, 6, generator=torch.Generator().manual_seed(i)), torch.arange(12) % 3) for i in range(3)]


def net(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3, bias=False)
    ).to(dtype)


def probe_of(model: nn.Module, batches: Any = BATCHES, **given: Any) -> Probe:
    dtype = next(model.parameters()).dtype
    batches = [(x.to(dtype), y) for x, y in batches] if isinstance(batches, list) else batches
    return Probe("trial", model, find_layers(model), batches, given.pop("loss", functional.cross_entropy), **given)


def test_the_gradient_is_the_sum_of_the_batches() -> None:
    model = net()
    model[3].p = 0.0
    probe = probe_of(model)
    found = probe.gradient(probe.draw(3), temperature=5.0)
    for x, y in BATCHES:
        functional.cross_entropy(model(x.double()) / 5, y).backward()
    for name in ("0.weight", "4.weight"):
        assert torch.allclose(found[name], model.get_parameter(name).grad, rtol=1e-12)


class Attentive(nn.Module):
    """Attention by torch's own function, whose fastest kernels have no second derivative."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(2, 12), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(x.view(-1, 1, 3, 2)).chunk(3, -1)
        out: Tensor = self.out(functional.scaled_dot_product_attention(q, k, v).mean((1, 2)))
        return out


@pytest.mark.parametrize("attention", [False, True])
def test_the_hessian_product_is_the_slope_of_the_gradient(attention: bool) -> None:
    """(g(w + ev) - g(w - ev)) / 2e, in float64."""
    torch.manual_seed(0)
    model = Attentive().double() if attention else net()
    if not attention:
        model[3].p = 0.0
    probe = probe_of(model)
    batches = probe.draw(2)
    vector = {name: torch.randn_like(weight) for name, weight in probe.weights_of(probe.state()).items()}
    found = probe.hessian_product(batches, vector)
    size, slopes = 1e-5, []
    for sign in (1, -1):
        moved = copy.deepcopy(model)
        for name, direction in vector.items():
            moved.get_parameter(name).data += sign * size * direction
        slopes.append(probe_of(moved).gradient(batches))
    for name, product in found.items():
        expected = (slopes[0][name] - slopes[1][name]) / (2 * size)
        assert torch.allclose(product, expected, rtol=1e-5, atol=1e-8)
        assert product.abs().max() > 1e-4


def snapshot(model: nn.Module) -> list[Any]:
    state = [value.clone() for value in model.state_dict().values()]
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    flags = [p.requires_grad for p in model.parameters()] + [m.training for m in model.modules()]
    return [*state, *grads, *flags, torch.get_rng_state()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("fails", [False, True])
def test_looking_leaves_everything_as_it_was(dtype: torch.dtype, fails: bool) -> None:
    model = net(dtype)
    model[1].eval()
    model[1].weight.requires_grad_(False)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(24, 6, dtype=dtype), torch.arange(24) % 3), 12, shuffle=True
    )

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if fails:
            raise RuntimeError("a user's mistake")
        return functional.cross_entropy(outputs.float(), targets)

    probe = probe_of(model, loader, loss=loss)
    before, storages = snapshot(model), [p.data_ptr() for p in model.parameters()]
    try:
        batches = probe.draw(2)
        gradient = probe.gradient(batches)
        probe.hessian_product(batches, gradient)
    except RuntimeError:
        assert fails
    else:
        assert not fails
        assert all(value.dtype == torch.float64 and value.any() for value in gradient.values())
    after = snapshot(model)
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a is b
    assert storages == [p.data_ptr() for p in model.parameters()]


class Checkpointed(nn.Module):
    """Runs its layers again in the backward pass, so that activations need not be kept."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.layers, x, use_reentrant=False)
        return out


@pytest.mark.parametrize("dtype", slow_but_for([torch.float32], [torch.float32, torch.float64]))
@pytest.mark.parametrize("name", ["snip", "grasp", "synflow"])
def test_checkpointed_activations_change_nothing(name: str, dtype: torch.dtype) -> None:
    plain, model = net(dtype), Checkpointed(net(dtype))
    before = {name: value.clone() for name, value in model.named_buffers()}
    batches = [(x.to(dtype), y) for x, y in BATCHES]
    masks = [
        granet.sparsify(
            one,
            torch.optim.SGD(one.parameters(), lr=0.1),
            granet.create_method(name, sparsity=0.5),
            batches=batches,
            loss=functional.cross_entropy,
        ).masks
        for one in (plain, model)
    ]
    for there, here in zip(masks[0].values(), masks[1].values(), strict=True):
        assert torch.equal(there, here)
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_tied_weights_and_compiled_models_are_called_like_others() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.two(torch.tanh(self.one(x)))
            return out

    torch.manual_seed(0)
    model = Tied().double()
    compiled = torch.compile(model, backend="eager")
    found = [(probe := probe_of(m)).gradient(probe.draw(1)) for m in (model, compiled)]
    functional.cross_entropy(model(BATCHES[0][0].double()), BATCHES[0][1]).backward()
    for gradient in found:
        assert list(gradient) == ["one.weight"]
        assert torch.allclose(gradient["one.weight"], model.one.weight.grad, rtol=1e-12)


def test_a_model_with_a_compiled_part_has_second_derivatives() -> None:
    plain, model = net(), net()
    plain[3].p = model[3].p = 0.0
    model[2] = torch.compile(nn.Sequential(nn.Tanh()), backend="aot_eager")
    found = []
    for probe in (probe_of(plain), probe_of(model)):
        batches = probe.draw(1)
        found.append(probe.hessian_product(batches, probe.gradient(batches)))
    assert all(torch.allclose(found[0][name], product, rtol=1e-12) for name, product in found[1].items())


def test_several_inputs_and_named_ones() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            out: Tensor = self.layer(a - b)
            return out

    torch.manual_seed(0)
    model = Two().double()
    x, y = BATCHES[0][0].double(), BATCHES[0][1]
    batches = [((x, x.flip(0)), y), ([x, x.flip(0)], y), ({"b": x.flip(0), "a": x}, y)]
    probe = Probe("trial", model, find_layers(model), iter(batches), functional.cross_entropy)
    first, *others = [probe.gradient([batch])["layer.weight"] for batch in probe.draw(3)]
    assert first.any()
    assert all(torch.equal(first, other) for other in others)


def test_only_as_many_batches_are_drawn_as_asked_for() -> None:
    source = iter(BATCHES)
    probe = probe_of(net(torch.float32), source)
    probe.draw(2)
    assert len(list(source)) == 1


def test_a_loss_that_is_linear_in_the_weights_has_no_curvature() -> None:
    model = nn.Linear(3, 2)
    probe = Probe("trial", model, find_layers(model), [(torch.ones(4, 3), None)], lambda outputs, _: outputs.sum())
    gradient = probe.gradient(probe.draw(1))
    assert gradient["weight"].tolist() == [[4, 4, 4]] * 2
    assert not probe.hessian_product(probe.draw(1), gradient)["weight"].any()


def test_a_layer_that_is_not_used_has_no_gradient() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.used(x)
            return out

    probe = probe_of(Spare())
    gradient = probe.gradient(probe.draw(1))
    assert gradient["used.weight"].any()
    assert not gradient["spare.weight"].any()


def test_tensors_are_changed_whatever_holds_them() -> None:
    moved = each_tensor(lambda tensor: tensor.to("meta"), {"a": [torch.ones(2), "word"], "b": (torch.zeros(1),)})
    assert moved["a"][0].device.type == moved["b"][0].device.type == "meta"
    assert moved["a"][1] == "word"
    assert isinstance(moved["a"], list) and isinstance(moved["b"], tuple)


@pytest.mark.parametrize("alone", [True, False])
def test_sequences_packed_together_reach_the_model_as_such(alone: bool) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.out = nn.LSTM(6, 4), nn.Linear(4, 3)

        def forward(self, sequences: rnn.PackedSequence) -> Tensor:
            out: Tensor = self.out(self.cells(sequences)[1][0][0])
            return out

    packed = rnn.pack_sequence([torch.ones(5, 6), torch.ones(2, 6)])
    probe = probe_of(Recurrent(), iter([(packed if alone else (packed,), torch.tensor([0, 2]))]))
    assert probe.gradient(probe.draw(1))["out.weight"].any()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"batches": None}, ("batches", None, "2")),
    "too few": ({"batches": BATCHES[:1]}, ("batches", ..., "2")),
    "no iterable": ({"batches": 7}, ("batches", 7)),
    "no pairs": ({"batches": iter([torch.ones(2, 6), torch.ones(2, 6)])}, ("batches", ...)),
    "no loss": ({"loss": None}, ("loss", None)),
    "the name of a loss": ({"loss": "mse"}, ("loss", "mse")),
    "a loss of many numbers": ({"loss": lambda o, t: o}, ("loss", ...)),
    "a loss of its own": ({"loss": lambda o, t: torch.ones(())}, ("loss", ...)),
    "a loss that is a float": ({"loss": lambda o, t: 1.0}, ("loss", ..., "1.0")),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_used_is_refused(case: str) -> None:
    given, message = WRONG[case]
    probe = probe_of(net(torch.float32), **given)
    with refused(*message):
        probe.gradient(probe.draw(2))


def test_outputs_that_cannot_be_divided_are_refused() -> None:
    class Named(nn.Linear):
        def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"logits": super().forward(x)}

    def loss(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs["logits"], targets)

    probe = probe_of(Named(6, 4), loss=loss)
    with refused("temperature", 200.0):
        probe.gradient(probe.draw(1), temperature=200.0)
    assert probe.gradient(probe.draw(1))["weight"].any()


@pytest.mark.parametrize("shared", ["module", "weight"])
@pytest.mark.parametrize("name", ["snip", "grasp", "synflow"])
def test_a_model_that_uses_a_layer_twice_is_left_as_it_was(name: str, shared: str) -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), first if shared == "module" else second, nn.Linear(6, 4))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.randn(5, 6), torch.arange(5) % 4)]
    method = granet.create_method(name, sparsity=0.5)
    granet.sparsify(model, optimizer, method, batches=batches, loss=nn.functional.cross_entropy)
    for key, parameter in model.named_parameters(remove_duplicate=False):
        assert parameter is parameters[key], key

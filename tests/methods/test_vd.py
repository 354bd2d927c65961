"""Sparse variational dropout: its formulas, a training written out, and the masks at the end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import granet
from granet.hidden.noise import kl, kl_slope, log_alpha, unit_log_alpha
from granet.net import SparseNet
from granet.patterns import SINGLE
from granet.scores import magnitude
from granet.weights import find_layers
from refusals import refused

STEPS = 12


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 4)).double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 2, 5, 5, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return x, x.flatten(1)[:, :4].argmax(1)


def start(method: granet.VD, **how: Any) -> tuple[nn.Sequential, torch.optim.Optimizer, granet.Sparsifier]:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=STEPS, **how)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS) -> None:
    for step in range(steps):
        x, y = batch(step)
        torch.manual_seed(step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def exact_kl(log_alpha: float) -> float:
    """KL(N(1, a) || log-uniform) = E log|1 + sqrt(a) z| - log(a)/2 - E log|z|, by the midpoint rule: 0 as a grows."""
    z = (np.arange(4_000_000) + 0.5) / 4_000_000 * 24 - 12
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * 24 / 4_000_000
    log_z = -(np.euler_gamma + math.log(2)) / 2
    return float((density * np.log(np.abs(1 + math.exp(log_alpha / 2) * z))).sum()) - log_alpha / 2 - log_z


@pytest.mark.parametrize("log_alpha", [-6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0])
def test_the_divergence_is_that_of_the_log_uniform_prior(log_alpha: float) -> None:
    assert float(kl(torch.tensor(log_alpha))) == pytest.approx(exact_kl(log_alpha), abs=0.01)


def test_the_divergence_has_the_constants_of_the_paper() -> None:
    sigmoid = 1 / (1 + math.exp(-(1.87320 + 1.48695 * 0.7)))
    by_hand = -(0.63576 * sigmoid - 0.5 * math.log(1 + math.exp(-0.7)) - 0.63576)
    assert float(kl(torch.tensor(0.7, dtype=torch.float64))) == pytest.approx(by_hand, rel=1e-12)


def test_the_slope_is_the_derivative() -> None:
    x = torch.linspace(-20, 20, 81, dtype=torch.float64, requires_grad=True)
    kl(x).sum().backward()
    torch.testing.assert_close(kl_slope(x.detach()), x.grad, rtol=1e-9, atol=1e-15)
    assert (kl_slope(x.detach()) < 0).all()


def test_the_share_of_noise_is_that_in_single_precision_and_finite_at_zero() -> None:
    """In half precision the square of a small weight would be 0, and so would what keeps the logarithm finite."""
    (layer,) = find_layers(nn.Linear(3, 1).half())
    layer.weight.data.copy_(torch.tensor([[0.0, 1e-4, 0.5]]))
    log_sigma2 = torch.full((1, 3), -10.0)
    expected = -10 - torch.log(layer.weight.detach().float() ** 2 + 1e-8)
    torch.testing.assert_close(log_alpha(layer.weight, log_sigma2), expected)
    torch.testing.assert_close(unit_log_alpha(SINGLE, layer, log_sigma2), expected)


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(5, 3), (5,)),
    "conv": (nn.Conv2d(4, 6, 3, stride=2, padding=1, padding_mode="circular", groups=2), (4, 5, 5)),
    "transposed": (nn.ConvTranspose1d(3, 2, 3, stride=2, output_padding=1), (3, 4)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_the_output_has_the_mean_and_variance_of_random_weights(kind: str) -> None:
    """Against outputs with weights that are drawn themselves, not their outputs."""
    module, shape = LAYERS[kind]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.manual_seed(0)
    x = torch.randn(shape)
    clean = {"weight": module.weight.detach().clone(), "bias": module.bias}
    drawn = torch.stack(
        [
            torch.func.functional_call(module, clean | {"weight": clean["weight"] + 0.3 * torch.randn(w)}, (x[None],))
            for w in [module.weight.shape] * 1500
        ]
    ).squeeze(1)
    mean = module(x[None])[0]
    granet.sparsify(module, optimizer, granet.VD(log_sigma2=2 * math.log(0.3)), total_steps=9)
    noisy = module(x.expand(4000, *shape))
    scale = drawn.std(0)
    assert ((noisy.mean(0) - mean).abs() < 0.08 * scale + 1e-5).all()  # 5 sigma of a mean of 4000
    assert torch.allclose(noisy.std(0), scale, rtol=0.12, atol=2e-4)


def test_gradients_may_be_cleared_in_place() -> None:
    """By `model.zero_grad`, which knows nothing of the noise."""
    found = []
    for in_place in (False, True):
        model, optimizer, sparsifier = start(granet.VD(examples=40, log_sigma2=-4.0, end=6))
        for step in range(STEPS):
            x, y = batch(step)
            torch.manual_seed(step)
            model.zero_grad(set_to_none=not in_place)
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        found.append(sparsifier.state_dict()["hidden"]["log_sigma2"])
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name])


def test_a_step_that_is_given_up_leaves_nothing_behind() -> None:
    """Its gradients are cleared with those of the model, and the next backward pass is the one that counts."""
    found = []
    for passes in (1, 2):
        model, optimizer, sparsifier = start(granet.VD(examples=40, log_sigma2=-4.0, end=6))
        for step in range(STEPS):
            x, y = batch(step)
            for _ in range(passes):
                torch.manual_seed(step)
                model.zero_grad()
                functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        found.append(sparsifier.state_dict()["hidden"]["log_sigma2"])
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name])


def test_a_training_is_the_one_written_out() -> None:
    """theta and log sigma^2 by autograd through loss + weight * KL, with the same noise and torch's own optimizer."""
    method = granet.VD(examples=40, log_sigma2=-4.0, start=2, end=6, threshold=1.0, every=4)
    model, optimizer, sparsifier = start(method)
    twin = net()
    names = ["0.weight", "3.weight"]
    log_sigma2 = {name: nn.Parameter(torch.full_like(twin.get_parameter(name), -4.0)) for name in names}
    reference = torch.optim.SGD([*twin.parameters(), *log_sigma2.values()], lr=0.1, momentum=0.9)
    k1, k2, k3 = 0.63576, 1.87320, 1.48695
    for step in range(STEPS):
        x, y = batch(step)
        torch.manual_seed(step)
        reference.zero_grad()
        convolved = functional.conv2d(x**2, log_sigma2["0.weight"].exp())
        out = twin[0](x)
        out = torch.tanh(out + (convolved + 1e-8).sqrt() * torch.randn_like(out)).flatten(1)
        logits = twin[3](out)
        logits = logits + (out**2 @ log_sigma2["3.weight"].exp().T + 1e-8).sqrt() * torch.randn_like(logits)
        weight = min(1.0, max(0.0, (step - 2) / 4)) / 40
        divergence = torch.zeros((), dtype=torch.float64)
        for name in names:
            log_alpha = log_sigma2[name] - torch.log(twin.get_parameter(name) ** 2 + 1e-8)
            negative = k1 * torch.sigmoid(k2 + k3 * log_alpha) - 0.5 * torch.log1p(torch.exp(-log_alpha)) - k1
            divergence = divergence - negative.sum()
        (functional.cross_entropy(logits, y) + weight * divergence).backward()
        reference.step()

        torch.manual_seed(step)
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        for name in names:
            theta, found = twin.get_parameter(name).detach(), sparsifier.state_dict()["hidden"]["log_sigma2"][name]
            torch.testing.assert_close(model.get_parameter(name).detach(), theta, rtol=1e-8, atol=1e-10)
            torch.testing.assert_close(found, log_sigma2[name].detach(), rtol=1e-8, atol=1e-10)
            assert torch.equal(sparsifier.masks[name], log_sigma2[name] - torch.log(theta**2 + 1e-8) <= 1.0)
    assert 0.05 < sparsifier.sparsity < 0.95
    assert [record.step for record in sparsifier.history] == [4, 8, 12]
    assert sparsifier.history[-1].achieved == sparsifier.sparsity


def log_alphas(model: nn.Module, sparsifier: granet.Sparsifier) -> dict[str, Tensor]:
    hidden = sparsifier.state_dict()["hidden"]["log_sigma2"]
    return {name: value - (model.get_parameter(name).detach() ** 2 + 1e-8).log() for name, value in hidden.items()}


def test_the_end_prunes_log_alpha_above_3() -> None:
    model, optimizer, sparsifier = start(granet.VD(examples=20, log_sigma2=-3.0))
    train(model, optimizer)
    before = {name: model.get_parameter(name).detach().clone() for name in sparsifier.layers}
    expected = {name: value <= 3 for name, value in log_alphas(model, sparsifier).items()}
    share = sparsifier.sparsity
    assert 0.02 < share < 0.98
    x = batch(99)[0]
    model.eval()
    evaluated = model(x)
    sparsifier.finish()
    for name, mask in expected.items():
        assert torch.equal(sparsifier.masks[name], mask)
        assert torch.equal(model.get_parameter(name), torch.where(mask, before[name], 0.0))
    assert sparsifier.sparsity == share
    torch.testing.assert_close(model(x), evaluated, rtol=0, atol=0)  # evaluation left them out before
    assert torch.equal(model.train()(x), evaluated)  # and there is no noise now


@pytest.mark.parametrize(("sparsity", "log_sigma2"), [(0.7, -3.0), (0.2, 0.0)])
def test_the_end_can_rank_to_an_exact_sparsity(sparsity: float, log_sigma2: float) -> None:
    """Above the one that the threshold gives, or below it: then some that are mostly noise stay."""
    model, optimizer, sparsifier = start(granet.VD(sparsity=sparsity, examples=20, log_sigma2=log_sigma2))
    train(model, optimizer)
    values = log_alphas(model, sparsifier)
    flat = torch.cat([value.flatten() for value in values.values()])
    limit = flat.sort().values[216 - round(216 * sparsity) - 1]
    assert (limit > 3) == (sparsity == 0.2)
    sparsifier.finish()
    for name, value in values.items():
        assert torch.equal(sparsifier.masks[name], value <= limit)
    assert sum(int((model.get_parameter(name) == 0).sum()) for name in values) == round(216 * sparsity)


@pytest.mark.parametrize(("floor", "left"), [(1, [1, 1]), (3, [3, 3]), (0, [0, 0])])
def test_a_layer_of_noise_alone_keeps_its_floor(floor: int, left: list[int]) -> None:
    model, _, sparsifier = start(granet.VD(log_sigma2=9.0), floor=floor)
    largest = {name: layer.weight.detach().abs().flatten().topk(3).values for name, layer in sparsifier.layers.items()}
    assert sparsifier.sparsity == 1
    sparsifier.finish()
    assert [layer.active for layer in sparsifier.layers.values()] == left
    for name, values in largest.items():  # all have the same noise, so the largest have the least alpha
        kept = model.get_parameter(name).detach().abs().flatten()
        assert torch.equal(kept[kept > 0].sort(descending=True).values, values[:floor])


def test_a_layer_above_its_floor_gets_nothing_back() -> None:
    layers = find_layers(net())
    sparse = SparseNet(layers, floor=3)
    layers[1].mask.zero_()
    sparse.open(0, layers, torch.tensor(True))
    sparse.recount()
    sparse.grow_to_floor(magnitude)
    sparse.commit().write_masks()
    assert sparse.active.tolist() == [layer.active for layer in layers] == [72, 3]


def test_the_weight_of_the_divergence_rises_linearly() -> None:
    method = granet.VD(examples=100, kl_scale=2.0, start="10%", end="50%")
    weights = [method.kl_weight(granet.Clock(step, 100)) for step in (0, 10, 30, 50, 90)]
    assert weights == pytest.approx([0, 0, 0.01, 0.02, 0.02])
    assert granet.VD(examples=10, start=0, end=0).kl_weight(granet.Clock(0)) == pytest.approx(0.1)
    at_once = granet.VD(examples=10, start=5, end=5)
    assert [at_once.kl_weight(granet.Clock(step)) for step in (0, 4, 5)] == [0, 0, 0.1]


def test_weight_decay_does_not_touch_the_noise() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
    sparsifier = granet.sparsify(model, optimizer, granet.VD(kl_scale=0.0), total_steps=9)
    model(torch.zeros(4, 3)).sum().backward()
    optimizer.step()
    assert torch.equal(sparsifier.state_dict()["hidden"]["log_sigma2"]["weight"], torch.full((2, 3), -10.0))


@pytest.mark.filterwarnings("ignore:granet. method='vd'. weights had a gradient but no noise")
def test_no_divergence_without_noise() -> None:
    """Trained in evaluation mode a layer gets no noise, and so no pull towards it."""
    model, optimizer, sparsifier = start(granet.VD(examples=1, start=0, end=0))
    model.eval()
    train(model, optimizer, 3)
    assert all((value == -10).all() for value in sparsifier.state_dict()["hidden"]["log_sigma2"].values())


def test_clearing_the_gradients_of_the_model_alone_is_enough() -> None:
    runs = [start(granet.VD(examples=20, log_sigma2=-4.0)) for _ in range(2)]
    for step in range(4):
        x, y = batch(step)
        for (model, optimizer, _), clear in zip(runs, ("model", "optimizer"), strict=True):
            (model if clear == "model" else optimizer).zero_grad()
            torch.manual_seed(step)
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    states = [run[2].state_dict()["hidden"]["log_sigma2"] for run in runs]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_ranks_share_the_gradient_of_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """As two ranks would: what all_reduce adds here is the gradient of the other one, which is three times ours."""
    method, distributed = granet.VD(kl_scale=0.0, log_sigma2=-4.0), torch.distributed
    alone = start(method)
    train(*alone[:2], 1)
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "all_reduce", lambda gradient: gradient.add_(3 * gradient))
    shared = start(method)
    train(*shared[:2], 1)
    states = [run[2].state_dict()["hidden"]["log_sigma2"] for run in (alone, shared)]
    for name in states[0]:
        one, two = (state[name] + 4.0 for state in states)
        assert one.abs().max() > 0
        torch.testing.assert_close(two, 2 * one, rtol=1e-6, atol=1e-12)


def test_a_weight_that_is_no_layers_is_refused_and_nothing_is_changed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Embedding(5, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused("method", "vd", "'1.weight'"):
        granet.sparsify(model, optimizer, granet.VD(), total_steps=9, also="1.weight")
    assert len(optimizer.param_groups) == 1
    assert not any(module._forward_hooks for module in model.modules())
    assert not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("where", ["weight", "hidden"])
def test_weights_and_noise_that_are_not_finite_end_in_one_clear_error(where: str) -> None:
    _, _, sparsifier = start(granet.VD())
    getattr(sparsifier.layers["3.weight"], where).data[0, 0] = math.nan
    with refused("method", "vd", "'3.weight'"):
        sparsifier.finish()
    assert sparsifier.hidden


def test_modules_are_called_as_the_model_calls_them() -> None:
    model, x = nn.ConvTranspose2d(3, 3, 3, stride=2, padding=1), torch.randn(2, 3, 4, 4)
    granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), granet.VD(log_sigma2=-30.0), total_steps=9)
    shapes = [model.train(mode)(x, output_size=(8, 8)).shape for mode in (True, False)]
    shapes += [model.train(mode)(x, (8, 8)).shape for mode in (True, False)]
    assert shapes == [(2, 3, 8, 8)] * 4
    linear, x = nn.Linear(3, 2), torch.randn(4, 3)
    granet.sparsify(linear, torch.optim.SGD(linear.parameters(), lr=0.1), granet.VD(log_sigma2=-30.0), total_steps=9)
    torch.testing.assert_close(linear(input=x), linear(x), rtol=0, atol=1e-3)
    torch.testing.assert_close(linear.eval()(input=x), linear(x))


def test_parameters_of_a_functional_call_are_used() -> None:
    """An average of the weights, say, is evaluated without a copy of the model."""
    model, _, sparsifier = start(granet.VD(log_sigma2=-3.0))
    other = {name: torch.randn_like(value) for name, value in model.named_parameters()}
    twin = net()
    twin.load_state_dict(other | {name: other[name] * mask for name, mask in sparsifier.masks.items()})
    assert 0 < sparsifier.sparsity < 1
    x, _ = batch(0)
    torch.testing.assert_close(torch.func.functional_call(model.eval(), other, (x,)), twin(x))


def test_layers_that_noise_cannot_reach_are_named_once() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    granet.sparsify(model, optimizer, granet.VD(), total_steps=9, exclude="*.in_proj_weight")
    names = tuple(f"layers.{i}.self_attn.out_proj.weight" for i in range(2))  # their weights are read, never called
    with pytest.warns(UserWarning, match="had a gradient but no noise") as said:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(3, 2, 4)).square().sum().backward()
            optimizer.step()
    assert len(said) == 1
    assert f"exclude={names!r}" in str(said[0].message)


def test_a_model_that_was_moved_after_sparsify_is_refused() -> None:
    model, _, _ = start(granet.VD())
    with refused("model"):
        model.to("meta")(batch(0)[0].to("meta"))

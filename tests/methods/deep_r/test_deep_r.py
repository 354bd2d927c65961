"""Deep-R: weights keep their sign or go, and for each that goes a random one comes, after every step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import granet
from granet import Clock, DeepR
from granet.keyed_noise import normal_noise
from granet.methods.deep_r import langevin
from granet.scores import random
from quick import slow_but_for

LOUD = {"l1": 0.02, "noise": 0.05}  # enough for many crossings in a few steps


def start(method: granet.Method, dtype: torch.dtype = torch.float32, **optimizer: float):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 6)).to(dtype)
    initial = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    sgd = torch.optim.SGD(model.parameters(), **{"lr": 0.1} | optimizer)
    return model, sgd, granet.sparsify(model, sgd, method, total_steps=100), initial


def backward(model: nn.Module, step: int, dtype: torch.dtype = torch.float32) -> None:
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(step)).to(dtype)
    nn.functional.cross_entropy(model(x).float(), x[:, :6].argmax(1)).backward()


def test_a_step_is_the_one_written_out_by_hand() -> None:
    """theta <- theta - eta * gradient - eta * alpha + eta * noise * nu; below zero off, as many random others on."""
    model, optimizer, sparsifier, initial = start(DeepR(sparsity=0.6, **LOUD))
    crossings = 0
    for step in range(1, 40):
        optimizer.param_groups[0]["lr"] = eta = 0.1 if step < 20 else 0.05
        optimizer.zero_grad()
        backward(model, step)
        before = {
            name: (layer.weight.detach().clone(), layer.mask.clone(), layer.weight.grad.clone())
            for name, layer in sparsifier.layers.items()
        }
        optimizer.step()
        for index, (name, layer) in enumerate(sparsifier.layers.items()):
            assert layer.index == index
            weight, mask, gradient = (t.numpy().ravel() for t in before[name])
            sign = np.sign(initial[name].numpy().ravel())
            nu = normal_noise(layer.weight, (0, index, step, 2)).numpy().ravel()
            theta = sign * weight
            theta[mask] += (-eta * sign * gradient - eta * 0.02 + sign * eta * 0.05 * nu)[mask]
            off = mask & (theta < 0)
            order = np.argsort(-random(layer, step).numpy().ravel(), kind="stable")
            dormant = [k for k in order if not mask[k] or off[k]]
            expected = mask & ~off
            expected[dormant[: off.sum()]] = True
            assert layer.mask.numpy().ravel().tolist() == expected.tolist()
            theta[off | ~mask] = 0
            np.testing.assert_allclose(layer.weight.detach().numpy().ravel(), sign * theta, rtol=1e-5, atol=1e-7)
            crossings += off.sum()
    assert crossings > 100


@pytest.mark.parametrize("sparsity", [0.0, 0.6])
def test_what_goes_and_comes_back_at_once_has_no_momentum(sparsity: float) -> None:
    """In a dense layer there is no other place to grow at."""
    model, optimizer, sparsifier, _ = start(DeepR(sparsity=sparsity, **LOUD), momentum=0.9)
    fresh = 0
    for step in range(1, 20):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
        for layer in sparsifier.layers.values():
            new = layer.mask & (layer.weight == 0)
            assert not optimizer.state[layer.weight]["momentum_buffer"][new].any()
            fresh += int(new.sum())
    assert fresh > 30


@pytest.mark.parametrize(
    "dtype", slow_but_for([torch.float16], [torch.float32, torch.float16, torch.bfloat16, torch.float64])
)
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
def test_signs_and_counts_are_kept_at_every_step(dtype: torch.dtype, sparsity: float) -> None:
    """Also where there is hardly a place to go but the one just left."""
    model, optimizer, sparsifier, initial = start(DeepR(sparsity=sparsity, **LOUD), dtype, momentum=0.9)
    active = {name: layer.active for name, layer in sparsifier.layers.items()}
    masks = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    for step in range(1, 40):
        optimizer.zero_grad()
        backward(model, step, dtype)
        optimizer.step()
        for name, layer in sparsifier.layers.items():
            assert layer.active == active[name]
            assert (layer.weight * initial[name].sign() >= 0).all()
            assert torch.count_nonzero(layer.weight[~layer.mask]) == 0
            state = optimizer.state[layer.weight]["momentum_buffer"]
            assert torch.count_nonzero(state[~layer.mask]) == 0
    moved = [not torch.equal(mask, sparsifier.masks[name]) for name, mask in masks.items()]
    assert all(moved) == (sparsity > 0)


def test_weights_that_start_at_zero_get_a_sign_by_coin() -> None:
    model = nn.Linear(50, 40, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, DeepR(sparsity=0.5), total_steps=10)
    positive = sparsifier.layers["weight"].memory["sign"].float().mean()
    assert 0.45 < positive < 0.55


def test_a_weight_at_zero_without_gradient_noise_or_drift_stays() -> None:
    model, optimizer, sparsifier, _ = start(DeepR(sparsity=0.5, l1=0.0, noise=0.0), lr=0.0)
    masks = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    for layer in sparsifier.layers.values():
        layer.weight.data.zero_()
    backward(model, 1)
    optimizer.step()
    assert all(torch.equal(mask, sparsifier.masks[name]) for name, mask in masks.items())


def test_each_parameter_group_has_its_own_rate() -> None:
    """With rates 0 and 1 and no gradient, only the second layer drifts."""
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
    optimizer = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.0}, {"params": model[1].parameters()}], lr=1)
    granet.sparsify(model, optimizer, DeepR(sparsity=0.5, l1=1e-3, noise=0.0), total_steps=10)
    before = [layer.weight.detach().clone() for layer in model]
    for layer in model:
        layer.weight.grad = torch.zeros(6, 6)
    optimizer.step()
    assert torch.equal(model[0].weight, before[0])
    moved = before[1].abs() > 1e-3
    torch.testing.assert_close(model[1].weight.abs()[moved], before[1].abs()[moved] - 1e-3)


def test_a_gradient_that_is_not_finite_moves_nothing() -> None:
    model, optimizer, sparsifier, _ = start(DeepR(sparsity=0.5, log_every=1, **LOUD), lr=0.0)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.0)  # a rate may be a tensor
    backward(model, 1)
    layer = sparsifier.layers["0.weight"]
    place = tuple(layer.mask.nonzero()[0])
    layer.weight.grad[place] = torch.nan
    others = sparsifier.layers["2.weight"]
    before, mask = others.weight.detach().clone(), others.mask.clone()
    with pytest.warns(UserWarning, match="not finite"):
        optimizer.step()
    assert torch.equal(before, others.weight)
    assert torch.equal(mask, others.mask)


def test_the_history_has_one_step_of_many() -> None:
    model, optimizer, sparsifier, _ = start(DeepR(sparsity=0.5, log_every=10, end=35, **LOUD))
    for step in range(1, 50):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
        if step == 34:
            masks = {name: mask.clone() for name, mask in sparsifier.masks.items()}
    assert [record.step for record in sparsifier.history] == [10, 20, 30]
    assert all(record.regrown > 0 for record in sparsifier.history)
    assert all(torch.equal(mask, sparsifier.masks[name]) for name, mask in masks.items())  # no rewiring after its end


def test_the_noise_is_normal_and_new_at_every_step() -> None:
    like = torch.empty(1000, 100)
    one, two = normal_noise(like, (0, 0, 1, 2)), normal_noise(like, (0, 0, 2, 2))
    assert torch.equal(one, normal_noise(like, (0, 0, 1, 2)))
    assert one.isfinite().all()
    for noise in (one, two):
        sigma = torch.tensor([1.0, 2.0, 3.0])
        inside = [(noise.abs() < s).double().mean().item() for s in sigma]
        assert inside == pytest.approx(torch.erf(sigma / 2**0.5).tolist(), abs=0.004)
        assert abs(noise.mean()) < 0.015
        assert abs(noise.std() - 1) < 0.015
    assert abs((one * two).mean()) < 0.015


@pytest.mark.parametrize("drawn", [0.0, 1 - 2.0**-24])
def test_the_noise_is_finite_for_the_least_and_the_largest_draw(drawn: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.keyed_noise.uniform_noise", lambda like, key, part: torch.full_like(like, drawn))
    assert normal_noise(torch.empty(3), (0,)).isfinite().all()


def test_one_step_to_rewire_after_is_enough() -> None:
    assert DeepR(sparsity=0.9, end=2).updates(Clock(0, 100)) == range(1, 2)


@pytest.mark.parametrize(
    ("dtype", "pattern", "by_kernel"),
    [(torch.float32, "weight", True), (torch.float64, "weight", False), (torch.float32, "4x1", False)],
)
def test_a_kernel_walks_single_weights_of_float32_alone(
    dtype: torch.dtype, pattern: str, by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(8, 8).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    net = granet.sparsify(model, optimizer, DeepR(sparsity=0.5, pattern=pattern), total_steps=9)._net
    monkeypatch.setattr(langevin, "runs_kernels", lambda device: True)
    assert langevin._by_kernel(net, net.layers[0]) is by_kernel

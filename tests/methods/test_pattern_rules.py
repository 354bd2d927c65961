"""What a method does to whole blocks and filters, against the same rule written out in a few lines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import granet
from granet.methods.sis.inclusion import constraint, least_weights
from granet.patterns import units_of
from granet.weights import SparseLayer

pytestmark = pytest.mark.filterwarnings("ignore:.*is an output of the model")
UNITS = pytest.mark.parametrize("pattern", ["filter", "4x1"])
NAMES = ["0.weight", "3.weight"]
STEPS = 12


def small_net() -> nn.Sequential:
    """With smaller and larger filters."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(72, 8)).double()
    for name in NAMES:
        weight = model.get_parameter(name).detach()
        weight *= torch.linspace(0.3, 1.7, 8).view(-1, *[1] * (weight.ndim - 1))
    return model


def batch(step: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 2, 5, 5, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return x, x.flatten(1)[:, :8].argmax(1)


def begin(method: granet.Method, **options: Any) -> tuple[nn.Sequential, torch.optim.Optimizer, granet.Sparsifier]:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    options = {"batches": [batch(0)], "loss": cross_entropy} | options
    return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=STEPS, **options)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    x, y = batch(step)
    torch.manual_seed(step)
    optimizer.zero_grad()
    cross_entropy(model(x), y).backward()
    optimizer.step()


def check_best(units, score: dict[str, Tensor], masks: dict[str, Tensor], pattern: str) -> None:
    """Of all layers together the units with the largest mean scores are active."""
    means = torch.cat([units.split(score[name], pattern).mean(1) for name in masks])
    stay = torch.cat([units.active(mask, pattern) for mask in masks.values()])
    assert 0 < stay.sum() < len(stay)
    assert means[stay].min() > means[~stay].max()


# Before training.


@UNITS
def test_grasp_keeps_the_largest_signed_means(units, pattern: str) -> None:
    """By the Hessian written out, a row for each weight."""
    model = small_net()
    _, _, sparsifier = begin(granet.GraSP(sparsity=0.5, temperature=3.0, pattern=pattern))
    x, y = batch(0)
    sizes = [model.get_parameter(name).numel() for name in NAMES]

    def loss(flat: Tensor) -> Tensor:
        parts = [part.view(model.get_parameter(n).shape) for n, part in zip(NAMES, flat.split(sizes), strict=True)]
        return cross_entropy(functional_call(model, dict(zip(NAMES, parts, strict=True)), (x,)) / 3, y)

    weights = torch.cat([model.get_parameter(name).detach().flatten() for name in NAMES])
    gradient = torch.func.grad(loss)(weights)
    flow = weights * (torch.autograd.functional.hessian(loss, weights) @ gradient)
    score = {n: part.view(model.get_parameter(n).shape) for n, part in zip(NAMES, flow.split(sizes), strict=True)}
    assert (flow < 0).any()
    check_best(units, score, sparsifier.masks, pattern)


@UNITS
@pytest.mark.parametrize("rounds", [10, 40])
def test_synflow_keeps_the_units_of_most_flow_round_by_round(units, rounds: int, pattern: str) -> None:
    _, _, sparsifier = begin(granet.SynFlow(sparsity=0.6, rounds=rounds, pattern=pattern))
    first, last = (small_net().get_parameter(name).detach().abs() for name in NAMES)
    biases = [small_net()[i].bias.detach().abs() for i in (0, 3)]
    masks = [torch.ones_like(first), torch.ones_like(last)]
    sizes = torch.cat([units.split(mask, pattern).sum(1) for mask in masks])
    for k in range(1, rounds + 1):
        parts = [(first * masks[0]).requires_grad_(), (last * masks[1]).requires_grad_()]
        hidden = nn.functional.conv2d(torch.ones(1, 2, 5, 5).double(), parts[0], biases[0]).tanh().flatten(1)
        slopes = torch.autograd.grad(nn.functional.linear(hidden, parts[1], biases[1]).sum(), parts)
        means = torch.cat([units.split(p.detach() * s, pattern).mean(1) for p, s in zip(parts, slopes, strict=True)])
        alive = torch.cat([units.split(mask, pattern)[:, 0] for mask in masks])
        line = (means * alive - (1 - alive)).argsort(descending=True)
        keep = 720 - round(720 * (1 - 0.4 ** (k / rounds)))
        cut = int((torch.cat([torch.zeros(1), (sizes * alive)[line].cumsum(0)]) - keep).abs().argmin())
        stay = torch.zeros(len(line)).index_fill(0, line[:cut], 1.0)
        halves = stay.split([len(units.split(mask, pattern)) for mask in masks])
        masks = [units.join(half, mask, pattern).double() for half, mask in zip(halves, masks, strict=True)]
    assert all(torch.equal(sparsifier.masks[n], m.bool()) for n, m in zip(NAMES, masks, strict=True))
    assert all(mask.any() for mask in masks)


# Dense values behind the weights.


@UNITS
@pytest.mark.parametrize("name", ["dpf", "gmp-original"])
def test_hidden_units_of_the_largest_mean_weight_are_shown(units, name: str, pattern: str) -> None:
    fields = {"distribution": "global", "every": 2, "prune_end": 8, "pattern": pattern}
    model, optimizer, sparsifier = begin(granet.create_method(name, sparsity=0.5, **fields))
    back = 0
    for step in range(STEPS):
        before = {key: mask.clone() for key, mask in sparsifier.masks.items()}
        train_step(model, optimizer, step)
        hidden = sparsifier.state_dict()["hidden"]["weights"]
        if sparsifier.step in range(2, 9, 2):
            check_best(units, {key: value.abs() for key, value in hidden.items()}, sparsifier.masks, pattern)
        for key, mask in sparsifier.masks.items():
            assert torch.equal(model.get_parameter(key).detach(), torch.where(mask, hidden[key], 0.0))
            back += int((mask & ~before[key]).sum())
            assert hidden[key].all()  # nothing is lost
    assert back == sum(record.regrown for record in sparsifier.history)


# Thresholds.


def group_threshold(units, w: Tensor, s: Tensor, pattern: str) -> Tensor:
    size = units.join(units.split(w, pattern).square().mean(1).sqrt(), w, pattern)
    return w * torch.relu(1 - torch.sigmoid(s) / size)


@UNITS
@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_str_is_autograd_through_the_group_threshold(units, pattern: str, clipped: bool) -> None:
    model, optimizer, sparsifier = begin(granet.STR(s_init=-2.1, every=5, pattern=pattern))
    twin = small_net()
    weights = dict(twin.named_parameters())
    s = {name: nn.Parameter(torch.full((1, 1), -2.1, dtype=torch.float64)) for name in NAMES}
    reference = torch.optim.SGD([*weights.values(), *s.values()], lr=0.1, momentum=0.9, weight_decay=0.01)
    zeros = set()
    for step in range(STEPS):
        x, y = batch(step)
        reference.zero_grad()
        shown = {name: group_threshold(units, weights[name], s[name], pattern) for name in NAMES}
        cross_entropy(functional_call(twin, shown, (x,)), y).backward()
        reference.step()
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        if clipped:
            sparsifier.mask_gradients()  # once more than needed changes nothing
        optimizer.step()
        for name in NAMES:
            expected = group_threshold(units, weights[name], s[name], pattern).detach()
            torch.testing.assert_close(model.get_parameter(name).detach(), expected, rtol=1e-9, atol=1e-12)
            assert torch.equal(units.active(sparsifier.masks[name], pattern), units.split(expected, pattern).any(1))
        zeros.add(round(sparsifier.sparsity * 720))
    assert len(zeros) > 1 and 0 < max(zeros) < 720


@UNITS
def test_weights_loaded_into_str_are_shown_as_they_are(units, pattern: str) -> None:
    model, optimizer, _ = begin(granet.STR(s_init=-2.1, pattern=pattern))
    loaded = {name: value + 0.3 for name, value in small_net().state_dict().items()}
    model.load_state_dict(loaded)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    train_step(model, optimizer, 0)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, loaded[name], rtol=1e-9, atol=1e-12)


@UNITS
@pytest.mark.parametrize("sparsity", [0.0, 0.6])
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_vd_cuts_units_by_their_noise_to_signal(units, pattern: str, sparsity: float) -> None:
    fields = {"threshold": 0.2, "log_sigma2": -4.5, "examples": 2000, "end": 6, "every": 4}
    model, optimizer, sparsifier = begin(granet.VD(sparsity=sparsity, pattern=pattern, **fields))
    for layer in sparsifier.layers.values():
        layer.hidden.data.add_(torch.randn_like(layer.hidden))  # weights of a unit differ in noise
    alpha: dict[str, Tensor] = {}
    for step in range(STEPS):
        train_step(model, optimizer, step)
        log_sigma2 = sparsifier.state_dict()["hidden"]["log_sigma2"]
        for name in NAMES:
            noise = units.split(log_sigma2[name].exp(), pattern).sum(1)
            signal = units.split(model.get_parameter(name).detach().square(), pattern).sum(1)
            alpha[name] = noise / signal
            assert torch.equal(units.active(sparsifier.masks[name], pattern), alpha[name].log() <= 0.2)
    assert 0 < sparsifier.sparsity < 1
    sparsifier.finish()
    if sparsity:
        signal = {name: units.join(1 / value, model.get_parameter(name), pattern) for name, value in alpha.items()}
        check_best(units, signal, sparsifier.masks, pattern)
        assert sparsifier.sparsity == pytest.approx(sparsity, abs=36 / 720)
    else:
        assert all(torch.equal(units.active(sparsifier.masks[n], pattern), alpha[n].log() <= 0.2) for n in NAMES)


@pytest.mark.slow
@UNITS
def test_sis_finds_the_least_units(units, pattern: str) -> None:
    """With unit vectors as inputs, the least group-lasso norm within a distance of W is a group threshold of W."""
    torch.manual_seed(0)
    weight = torch.randn(8, 12).double() * torch.linspace(0.2, 2, 8)[:, None]
    layer = SparseLayer.of("weight", nn.Parameter(weight), 0, 0)
    kept = constraint(lambda w: torch.eye(12).double() @ w.T, weight, False, 0.5)
    found = least_weights(weight, [kept], 0.5, 3000, lambda v, t: units_of(pattern).shrink(layer, v, t))
    size = units.join(units.split(weight, pattern).square().mean(1).sqrt(), weight, pattern)
    low, high = 0.0, float(size.max())
    for _ in range(60):
        middle = (low + high) / 2
        distance = (weight * torch.relu(1 - middle / size) - weight).norm()
        low, high = (middle, high) if distance < 0.5 * weight.norm() else (low, middle)
    torch.testing.assert_close(found, weight * torch.relu(1 - low / size), rtol=1e-3, atol=1e-3)
    assert 0 < units.active(found != 0, pattern).sum() < len(units.split(weight, pattern))


@UNITS
def test_sis_by_tolerance_keeps_just_the_units_that_are_left(units, pattern: str) -> None:
    trained = {name: value * 1.2 for name, value in small_net().state_dict().items()}
    options = {"trained": trained, "batches": [batch(0), batch(1)]}
    method = granet.SIS(tolerance=0.6, batch_count=2, iterations=150, pattern=pattern)
    model, _, sparsifier = begin(method, **options)
    for name in NAMES:
        shown = units.split(model.get_parameter(name).detach(), pattern)
        assert torch.equal(units.active(sparsifier.masks[name], pattern), shown.any(1))
    assert 0 < sparsifier.sparsity < 1

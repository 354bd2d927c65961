"""STR against autograd through its formula, with torch's own optimizer on w and s."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import granet

STEPS = 15
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 4)).double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 2, 5, 5, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return x, x.flatten(1)[:, :4].argmax(1)


def shown(w: Tensor, s: Tensor) -> Tensor:
    return torch.sign(w) * torch.relu(w.abs() - torch.sigmoid(s))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_step_is_autograd_through_the_formula(optimizer: str) -> None:
    model, twin = net(), net()
    optim = OPTIMIZERS[optimizer](model.parameters())
    sparsifier = granet.sparsify(model, optim, granet.STR(s_init=-3.0, every=5), total_steps=STEPS)

    names = ["0.weight", "3.weight"]
    weights = dict(twin.named_parameters())
    thresholds = {name: nn.Parameter(torch.full((1, 1), -3.0, dtype=torch.float64)) for name in names}
    reference = OPTIMIZERS[optimizer]([*weights.values(), *thresholds.values()])
    sparsities = set()
    for step in range(STEPS):
        x, y = batch(step)
        reference.zero_grad()
        visible = {name: shown(weights[name], thresholds[name]) for name in names}
        nn.functional.cross_entropy(functional_call(twin, visible, (x,)), y).backward()
        reference.step()

        optim.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optim.step()
        state = sparsifier.state_dict()["hidden"]
        for name in names:
            torch.testing.assert_close(state["weights"][name], weights[name].detach(), rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(state["s"][name], thresholds[name].detach(), rtol=1e-9, atol=1e-12)
            visible_now = shown(weights[name], thresholds[name]).detach()
            torch.testing.assert_close(model.get_parameter(name).detach(), visible_now, rtol=1e-9, atol=1e-12)
            assert torch.equal(sparsifier.masks[name], visible_now != 0)
        zeros = sum(int((model.get_parameter(name) == 0).sum()) for name in names)
        assert sparsifier.sparsity == zeros / (72 + 144)
        sparsities.add(zeros)
    assert len(sparsities) > 3  # the thresholds did move
    assert [(record.step, record.target) for record in sparsifier.history] == [(5, 0.0), (10, 0.0), (15, 0.0)]
    assert sparsifier.history[-1].achieved == sparsifier.sparsity


def test_thresholds_follow_the_learning_rate_of_their_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False))
    groups = [{"params": [model[0].weight], "lr": 0.1}, {"params": [model[1].weight], "lr": 0.2}]
    optimizer = torch.optim.SGD(groups, lr=1.0, weight_decay=0.5)
    sparsifier = granet.sparsify(model, optimizer, granet.STR(s_init=-8.0), total_steps=9)
    s = [-8.0, -8.0]
    for rates in ((0.1, 0.2), (0.05, 0.0)):
        for group, rate in zip(optimizer.param_groups, rates, strict=False):
            group["lr"] = rate
        for layer in model:
            layer.weight.grad = torch.zeros_like(layer.weight)
        optimizer.step()
        s = [value * (1 - rate * 0.5) for value, rate in zip(s, rates, strict=True)]  # weight decay alone
    found = sparsifier.state_dict()["hidden"]["s"]
    assert [found[name].item() for name in ("0.weight", "1.weight")] == [pytest.approx(value) for value in s]


@pytest.mark.parametrize("decay", [0.004, 0.0])
def test_thresholds_may_have_a_decay_of_their_own(decay: float) -> None:
    """After n steps of SGD with momentum and no gradient, s is what the recursion says; see also the docstring."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.06)
    method = granet.STR(s_init=-1000.0, s_decay=decay)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=400)
    s, momentum = -1000.0, 0.0
    for _ in range(400):
        model[0].weight.grad = torch.zeros(4, 4)
        optimizer.step()
        momentum = 0.9 * momentum + decay * s
        s -= 0.1 * momentum
    assert float(sparsifier.state_dict()["hidden"]["s"]["0.weight"]) == pytest.approx(s, rel=1e-4)
    assert s == pytest.approx(-1000 * math.exp(-decay * 400 * 0.1 / (1 - 0.9)), rel=0.05)
    assert model[0].weight.detach().abs().max() < 1e-6  # by the weights' own decay, at least 15 times as fast


def reached(s_init: float) -> float:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    sparsifier = granet.sparsify(model, optimizer, granet.STR(s_init=s_init), total_steps=10)
    for step in range(10):
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    sparsifier.finish()
    return sparsifier.sparsity


def test_a_search_over_s_init_can_reach_a_sparsity() -> None:
    """The knob is monotone: a plain bisection finds half of the weights."""
    low, high = -10.0, 0.0
    assert reached(low) < 0.1
    assert reached(high) > 0.9
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) < 0.5 else (low, middle)
    assert reached(high) == pytest.approx(0.5, abs=0.02)


def finished(sparsity: float) -> tuple[nn.Sequential, granet.Sparsifier]:
    """216 weights of which training left 180, and then the end of it."""
    model = net()
    with torch.no_grad():
        model[3].weight[0, :] = 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match=r"granet: 3\.weight: sparse already"):
        sparsifier = granet.sparsify(model, optimizer, granet.STR(sparsity=sparsity, s_init=-50.0), total_steps=10)
    sparsifier.finish()
    return model, sparsifier


@pytest.mark.parametrize("sparsity", [0.0, 36 / 216 - 0.005, 36 / 216])
def test_what_is_as_sparse_as_asked_for_or_more_stays(sparsity: float) -> None:
    assert finished(sparsity)[1].sparsity == 36 / 216


def test_a_sparsity_is_met_exactly_by_cutting_the_smallest_weights_of_all_layers() -> None:
    whole, _ = finished(0.0)
    model, sparsifier = finished(38 / 216)
    gone = [(now == 0) & (before != 0) for now, before in zip(model.parameters(), whole.parameters(), strict=True)]
    weights = torch.cat([p.detach().flatten() for p in whole.parameters() if p.dim() > 1]).abs()
    assert sparsifier.sparsity == 38 / 216
    cut = torch.cat([p.detach()[where] for p, where in zip(whole.parameters(), gone, strict=True)])
    assert torch.equal(cut.abs().sort().values, weights[weights > 0].sort().values[:2])


def test_a_sparsity_that_training_missed_is_said_at_the_end() -> None:
    with pytest.warns(UserWarning, match=r"sparsity=0\.9: str reached 0\.1667 by itself"):
        _, sparsifier = finished(0.9)
    assert sparsifier.sparsity == pytest.approx(0.9, abs=0.5 / 216)
    with pytest.warns(UserWarning, match=r"sparsity=0\.15: str reached 0\.1667 by itself"):
        _, sparsifier = finished(0.15)
    assert sparsifier.sparsity == 36 / 216


def test_a_layer_that_training_emptied_stays_empty() -> None:
    model = net()
    with torch.no_grad():
        model[3].weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match=r"granet: 3\.weight: sparse already"):
        sparsifier = granet.sparsify(model, optimizer, granet.STR(sparsity=0.75, s_init=-50.0), total_steps=10)
    with pytest.warns(UserWarning, match="reached 0.6667"):
        sparsifier.finish()
    assert [int(mask.sum()) for mask in sparsifier.masks.values()] == [54, 0]


def test_the_threshold_of_a_layer_without_a_gradient_stays() -> None:
    model, (x, y) = net(), batch(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.STR(s_init=-3.0), total_steps=10)
    nn.functional.cross_entropy(model(x), y).backward()
    sparsifier.mask_gradients()  # for a step that is then not taken
    model.zero_grad()  # the thresholds are none of its parameters
    nn.functional.cross_entropy(model(x), y).backward()
    model[0].weight.grad = None
    before = copy.deepcopy(sparsifier.state_dict()["hidden"]["s"])
    optimizer.step()
    after = sparsifier.state_dict()["hidden"]["s"]
    assert [name for name in after if torch.equal(before[name], after[name])] == ["0.weight"]

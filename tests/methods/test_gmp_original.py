"""GMP as first published: masks come and go, the weights behind them stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import granet
from granet import Clock, GMPOriginal
from refusals import refused

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1.0),
    "momentum and decay": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.3, weight_decay=0.1),
}


def push(model: nn.Linear, optimizer: torch.optim.Optimizer, *gradient: float) -> None:
    model.weight.grad = torch.tensor([gradient])
    optimizer.step()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_hidden_weight_returns_with_its_value(optimizer: str) -> None:
    model = nn.Linear(4, 1, bias=False)
    model.weight.data = torch.tensor([[2.0, 9.0, 1.5, 1.0]])
    optim = OPTIMIZERS[optimizer](model.parameters())
    sparsifier = granet.sparsify(model, optim, GMPOriginal(sparsity=0.5, every=1, prune_end=8), total_steps=9)
    before = model.weight[0, 2].item()
    while sparsifier.sparsity < 0.5:
        before = model.weight[0, 2].item()
        push(model, optim, 1e-3, 1e-3, 1e-3, 1e-3)
    assert sparsifier.masks["weight"].tolist() == [[True, True, False, False]]
    hidden = sparsifier.state_dict()["hidden"]["weights"]["weight"][0, 2].item()
    assert 0 < hidden <= before
    while model.weight[0, 2] == 0:
        assert sparsifier.step < 8
        push(model, optim, 1.0, 0.0, 5.0, 5.0)  # only the first weight falls; the gradient of the third is masked
    assert model.weight[0, 2].item() == hidden
    assert model.weight[0, 0] == 0
    assert sparsifier.history[-1].regrown >= 1


def test_only_active_weights_are_trained() -> None:
    """Against SGD with momentum and decay by hand, on the active weights alone."""
    model = nn.Linear(3, 1, bias=False)
    model.weight.data = torch.tensor([[3.0, -2.0, 0.5]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, weight_decay=0.1)
    sparsifier = granet.sparsify(model, optimizer, GMPOriginal(sparsity=0.3, every=1, prune_end=1), total_steps=9)
    push(model, optimizer, 1.0, 1.0, 1.0)
    # v = g + 0.1 w; w <- w - 0.1 v, then the smallest is hidden at 0.5 - 0.1 * 1.05
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[2.87, -2.08, 0.0]]))
    push(model, optimizer, 1.0, 1.0, 1.0)
    # v = 0.5 v + g + 0.1 w = [1.937, 1.192]
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[2.6763, -2.1992, 0.0]]))
    hidden = sparsifier.state_dict()["hidden"]["weights"]["weight"]
    torch.testing.assert_close(hidden, torch.tensor([[2.6763, -2.1992, 0.395]]))


def test_masks_are_fixed_after_the_window() -> None:
    model = nn.Linear(4, 1, bias=False)
    model.weight.data = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sparsifier = granet.sparsify(model, optimizer, GMPOriginal(sparsity=0.5, every=1, prune_end=2), total_steps=9)
    for _ in range(2):
        push(model, optimizer, 0.0, 0.0, 0.0, 0.0)
    for _ in range(5):
        push(model, optimizer, 0.0, 0.59, 0.0, 0.0)  # to 0.05, far below what is hidden
    assert sparsifier.masks["weight"].tolist() == [[True, True, False, False]]
    assert [record.regrown for record in sparsifier.history] == [0] * 7


def test_the_last_update_of_the_window_is_part_of_it() -> None:
    model = nn.Linear(4, 1, bias=False)
    model.weight.data = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sparsifier = granet.sparsify(model, optimizer, GMPOriginal(sparsity=0.5, every=1, prune_end=2), total_steps=9)
    push(model, optimizer, 0.0, 0.0, 0.0, 0.0)
    assert sparsifier.masks["weight"].tolist() == [[True, True, False, False]]
    push(model, optimizer, 0.0, 2.5, 0.0, 0.0)  # to 0.5, below both that are hidden
    assert model.weight.tolist() == [[4.0, 0.0, 2.0, 0.0]]


def test_an_update_that_was_skipped_is_made_up_for_after_the_window() -> None:
    model = nn.Linear(4, 1, bias=False)
    model.weight.data = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    sparsifier = granet.sparsify(model, optimizer, GMPOriginal(sparsity=0.5, every=1, prune_end=1), total_steps=9)
    with pytest.warns(UserWarning, match="not finite"):
        push(model, optimizer, float("inf"), 0.0, 0.0, 0.0)
    assert sparsifier.sparsity == 0
    model.weight.data = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[4.0, 3.0, 2.0, 1.0]]))
    push(model, optimizer, 0.0, 0.0, 0.0, 0.0)
    assert sparsifier.masks["weight"].tolist() == [[True, True, False, False]]


def test_layers_have_their_shares_also_where_an_update_is_made_up_for(trial) -> None:
    method = GMPOriginal(sparsity=0.75, every=10, prune_end=80)
    nets = [trial(method, 125).net for _ in range(2)]
    for net, step in zip(nets, (80, 90), strict=True):  # in the second, the updates of the window were all skipped
        net.open(step, net.layers, torch.tensor(True))
        for layer in net.layers:
            layer.hidden = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(layer.index))
        method.update(net, Clock(step, 125))
        net.commit().write_masks()
    for one, other in zip(nets[0].layers, nets[1].layers, strict=True):
        assert torch.equal(one.mask, other.mask)


def test_layers_are_uniform_but_the_first_is_dense_and_the_last_at_most_80_percent_sparse(trial) -> None:
    method = GMPOriginal(sparsity=0.75, every=10, prune_end=80)
    sizes = [432, 384, 1200, 400]
    net = trial(method, 125).net
    net.open(80, net.layers, torch.tensor(True))
    for layer in net.layers:
        layer.hidden = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(layer.index))
    method.update(net, Clock(80, 125))
    net.commit().write_masks()
    rest = (round(2416 * 0.25) - 432 - 80) / (384 + 1200)
    wanted = [432, 384 * rest, 1200 * rest, 80]
    active = [layer.active for layer in net.layers]
    assert active == [pytest.approx(count, abs=1) for count in wanted]
    assert sum(sizes) - sum(active) == round(2416 * 0.75)
    for layer, count in zip(net.layers, active, strict=True):
        assert layer.hidden is not None
        threshold = layer.hidden.abs().flatten().sort(descending=True).values[count - 1]
        assert torch.equal(layer.mask, layer.hidden.abs() >= threshold)


def test_a_budget_that_the_dense_first_layer_exceeds_is_refused() -> None:
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused("last_density=0.2, dense_first", True):
        granet.sparsify(model, optimizer, GMPOriginal(sparsity=0.9, every=1), total_steps=9)
    assert not optimizer._optimizer_step_pre_hooks

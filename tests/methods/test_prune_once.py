"""One-shot pruning of the net as it stands: exact counts, the right weights, and what grows back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import granet
from granet.net import SparseNet
from granet.weights import find_layers
from refusals import refused


def net(zeros: float = 0.0, seed: int = 0) -> nn.Sequential:
    """Two layers of 12 x 8 and 5 x 12 weights; about ``zeros`` of them are zero."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 5))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.mul_(torch.rand_like(layer.weight) >= zeros)
    return model


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [model[0].weight.detach().clone(), model[2].weight.detach().clone()]


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def brute_force(values: list[torch.Tensor], rate: float, together: bool) -> list[torch.Tensor]:
    """Which weights stay, by sorting plain Python lists."""
    flat = [(abs(v), i, j) for i, layer in enumerate(values) for j, v in enumerate(layer.flatten().tolist()) if v != 0]
    groups = [flat] if together else [[entry for entry in flat if entry[1] == i] for i in range(len(values))]
    keep = [torch.zeros(layer.numel(), dtype=torch.bool) for layer in values]
    for group in groups:
        for _, i, j in sorted(group)[round(len(group) * rate) :]:
            keep[i][j] = True
    return [mask.view(layer.shape) for mask, layer in zip(keep, values, strict=True)]


@given(
    st.floats(0.05, 0.85), st.sampled_from([0.0, 0.5, 0.7]), st.sampled_from(["global", "uniform"]), st.integers(0, 9)
)
def test_a_share_of_what_is_left_goes_and_zeros_stay_zero(
    rate: float, zeros: float, distribution: str, seed: int
) -> None:
    model = net(zeros, seed)
    before = weights(model)
    sparsifier = granet.sparsify(model, sgd(model), granet.PruneOnce(rate=rate, distribution=distribution), floor=0)
    wanted = brute_force(before, rate, together=distribution == "global")
    for mask, want, old, new in zip(sparsifier.masks.values(), wanted, before, weights(model), strict=True):
        assert torch.equal(mask, want)
        assert torch.equal(new, old * want)


def test_what_is_zero_is_switched_off_and_nothing_else() -> None:
    layers = find_layers(net(zeros=0.5))
    sparse = SparseNet(layers)
    sparse.open(0, layers, torch.tensor(True))
    sparse.keep_nonzero()
    sparse.commit().write_masks()
    assert all(torch.equal(layer.mask, layer.weight != 0) for layer in layers)
    assert sparse.active.tolist() == [layer.active for layer in layers]


@pytest.mark.filterwarnings("ignore:.*no gradient at a mask update")
def test_a_layer_regrows_what_it_lost_itself_where_another_has_no_gradient() -> None:
    model = net(zeros=0.5)
    before, optimizer = [int(weight.count_nonzero()) for weight in weights(model)], sgd(model)
    sparsifier = granet.sparsify(model, optimizer, granet.PruneAndRegenerate(rate=0.5, distribution="uniform"))
    pruned = list(sparsifier.active.values())
    model[2](torch.randn(16, 12)).square().sum().backward()
    optimizer.step()
    assert list(sparsifier.active.values()) == [pruned[0], before[1]]


def test_each_layer_regrows_what_it_lost_by_gradient_from_zero_with_fresh_momentum() -> None:
    model = net(zeros=0.5)
    optimizer = sgd(model)
    inputs, targets = torch.randn(16, 8), torch.randint(5, (16,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    with torch.no_grad():
        alive = [weight != 0 for weight in weights(model)]
    step()  # momentum everywhere
    with torch.no_grad():
        for layer, mask in zip((model[0], model[2]), alive, strict=True):
            layer.weight.mul_(mask)
    left = [int(mask.sum()) for mask in alive]
    sparsifier = granet.sparsify(model, optimizer, granet.PruneAndRegenerate(rate=0.6), total_steps=4)
    pruned = [mask.clone() for mask in sparsifier.masks.values()]
    assert sum(int(mask.sum()) for mask in pruned) == sum(left) - round(0.6 * sum(left))
    probe = net()
    probe.load_state_dict(model.state_dict())
    nn.functional.cross_entropy(probe(inputs), targets).backward()
    step()
    for i, (mask, layer, twin) in enumerate(
        zip(sparsifier.masks.values(), (model[0], model[2]), (probe[0], probe[2]), strict=True)
    ):
        lost = left[i] - int(pruned[i].sum())
        candidates = twin.weight.grad.abs().masked_fill(pruned[i], -1).flatten()
        grown = torch.zeros_like(candidates, dtype=torch.bool)
        grown[candidates.topk(lost).indices] = True
        grown = grown.view(mask.shape)
        assert torch.equal(mask, pruned[i] | grown)
        assert not layer.weight[grown].any() and not optimizer.state[layer.weight]["momentum_buffer"][grown].any()
    masks = [mask.clone() for mask in sparsifier.masks.values()]
    step()
    assert all(torch.equal(a, b) for a, b in zip(masks, sparsifier.masks.values(), strict=True))  # once only


@pytest.mark.parametrize("distribution", ["global", "uniform"])
@pytest.mark.parametrize("rate", [0.5, 0.98])
def test_filters_go_whole_and_each_layer_keeps_one(distribution: str, rate: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    with torch.no_grad():
        model[0].weight[:2] = 0  # two filters are gone already
    sums = model[0].weight.detach().abs().sum((1, 2, 3))
    method = granet.PruneOnce(rate=rate, distribution=distribution, pattern="filter")
    granet.sparsify(model, sgd(model), method, exclude=("3.weight",))
    alive = model[0].weight.detach().flatten(1).any(1)
    assert int(alive.sum()) == max(1, 6 - round(6 * rate))
    assert sums[alive].min() > sums[~alive].max()


def test_the_rate_decides_whatever_the_sparsity() -> None:
    model = net()
    sparsifier = granet.sparsify(model, sgd(model), granet.PruneOnce(sparsity=0.9, rate=0.25))
    assert sparsifier.target_sparsity == sparsifier.sparsity == 39 / 156


def test_weights_that_are_not_finite_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    nn.init.constant_(model[1].weight, float("nan"))
    with refused("model", ..., "once's score of '1.weight'"):
        granet.sparsify(model, torch.optim.SGD(model.parameters()), granet.PruneOnce(rate=0.5))

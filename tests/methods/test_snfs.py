"""SNFS: dropped by magnitude in each layer, shared out by mean momentum, grown by momentum."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import granet
from granet import SNFS, Clock, SNFSFixed
from granet.net import SparseNet
from granet.weights import SparseLayer

YES = torch.tensor(True)


def made(shapes, momenta=None, seed: int = 0, floor: int = 1) -> SparseNet:
    rng = np.random.default_rng(seed)
    layers = []
    for index, shape in enumerate(shapes):
        layer = SparseLayer.of(f"{index}", nn.Parameter(torch.from_numpy(rng.normal(size=shape)).float()), index, seed)
        value = torch.from_numpy(rng.normal(size=shape)).float() if momenta is None else momenta[index].clone()
        layer.memory["momentum"] = value
        layers.append(layer)
    return SparseNet(layers, floor)


def update(method: granet.Method, net: SparseNet, clock: Clock, accept=YES) -> None:
    net.open(clock.step, net.layers, accept)
    method.update(net, clock)
    net.commit().write_masks()
    assert net.active.tolist() == [layer.active for layer in net.layers]


def begin(method: granet.Method, net: SparseNet) -> None:
    net.open(0, net.layers, YES)
    method.begin(net)
    net.commit().write_masks()


def flat(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().flatten().double().numpy()


def test_an_update_is_the_plain_one(plain, equal) -> None:
    """Layers of 60, 80 and 40 weights; no layer fills up, so the shares are mean momenta over their sum."""
    method = SNFS(sparsity=0.75, every=10)
    for seed in range(10):
        net = made([(6, 10), (8, 10), (4, 10)], seed=seed)
        for layer, scale in zip(net.layers, (1.0, 2.0, 0.5), strict=True):
            layer.memory["momentum"] *= scale
        begin(method, net)
        assert net.active.tolist() == [15, 20, 10]
        before = [flat(layer.mask).astype(bool) for layer in net.layers]
        weights = [flat(layer.weight) for layer in net.layers]
        momenta = [flat(layer.memory["momentum"]) for layer in net.layers]
        update(method, net, Clock(10, 100))

        ratio = 0.005 + 0.495 / 2 * (1 + math.cos(math.pi * 0.1))
        dropped = [math.ceil(ratio * mask.sum()) for mask in before]
        demand = np.array([np.abs(m[mask]).mean() for m, mask in zip(momenta, before, strict=True)])
        exact = sum(dropped) * demand / demand.sum()
        grown = np.floor(exact).astype(int)
        for layer in np.argsort(-(exact - grown), kind="stable")[: sum(dropped) - grown.sum()]:
            grown[layer] += 1
        expected = []
        for weight, momentum, mask, less, more in zip(weights, momenta, before, dropped, grown, strict=True):
            kept = plain.prune_layer(weight, mask, mask.sum() - less)
            expected.append(kept | plain.prune_layer(momentum, ~kept, more))
        assert equal([flat(layer.mask).astype(bool) for layer in net.layers], expected)
        assert int(net.regrown) == sum(dropped)
        assert int(net.active.sum()) == 45


def test_what_a_full_layer_cannot_take_goes_to_the_others() -> None:
    """By hand. 20, 40 and 40 weights, half of each active, half of those dropped: 5, 10 and 10 go, so there is room
    for 15, 30 and 30. Momenta 8, 1 and 1 would share the 25 as 20, 2.5 and 2.5; the first takes 15, the others 5 each.
    """
    net = made([(2, 10), (4, 10), (4, 10)], [torch.full((n, 10), m) for n, m in ((2, 8.0), (4, -1.0), (4, 1.0))])
    method = SNFS(sparsity=0.5, every=10, regrow=0.5, regrow_end=0.5)
    begin(method, net)
    assert net.active.tolist() == [10, 20, 20]
    update(method, net, Clock(10, 100))
    assert net.active.tolist() == [20, 15, 15]
    update(method, net, Clock(20, 100))  # 10, 8 and 8 go; 26 in 8:1:1 is 20.8, 2.6, 2.6: ten, then 8 each
    assert net.active.tolist() == [20, 15, 15]


def test_without_any_momentum_weights_go_where_there_is_room() -> None:
    net = made([(2, 10), (4, 10)], [torch.zeros(2, 10), torch.zeros(4, 10)])
    method = SNFS(sparsity=0.5, every=10)
    begin(method, net)
    update(method, net, Clock(10, 100))
    assert int(net.active.sum()) == 30


def test_the_share_of_a_large_layer_is_taken_in_double_precision() -> None:
    """0.30000001 of a million weights are 300000.01: in single precision, 300000."""
    ratio = 0.30000001
    method = SNFS(sparsity=0.5, every=1, regrow=ratio, regrow_end=ratio)
    net = made([(1000, 2000)])
    begin(method, net)
    update(method, net, Clock(1, 10))
    assert net.regrown == math.ceil(1_000_000 * ratio) == 300_001


@pytest.mark.parametrize("floor", [1, 3])
def test_no_layer_falls_below_the_floor(floor: int) -> None:
    net = made([(2, 10), (4, 10)], [torch.zeros(2, 10), torch.ones(4, 10)], floor=floor)
    method = SNFS(sparsity=0.8, every=10, regrow=0.9)
    begin(method, net)
    for step in range(10, 100, 10):
        update(method, net, Clock(step, 100))
        assert int(net.active.sum()) == 12
    assert net.active.tolist() == [floor, 12 - floor]


def test_layers_that_cannot_move_have_their_share_already() -> None:
    net = made([(2, 10), (4, 10), (4, 10)])
    method = SNFS(sparsity=0.5, every=10)
    begin(method, net)
    net.open(10, net.layers[:2], YES)  # the third had no gradient
    method.update(net, Clock(10, 100))
    net.commit().write_masks()
    assert [int(net.active[:2].sum()), int(net.active[2])] == [30, 20]
    assert int(net.regrown) == 5 + 10  # ceil(0.488 * 10) and ceil(0.488 * 20)


def test_an_update_not_accepted_moves_nothing() -> None:
    net = made([(2, 10), (4, 10)])
    method = SNFS(sparsity=0.5, every=10)
    begin(method, net)
    before = [layer.mask.clone() for layer in net.layers]
    update(method, net, Clock(10, 100), accept=torch.tensor(False))
    assert all(torch.equal(mask, layer.mask) for mask, layer in zip(before, net.layers, strict=True))
    assert int(net.regrown) == 0


def test_with_fixed_counts_it_is_rigl_by_momentum(plain, equal) -> None:
    method = SNFSFixed(sparsity=0.6, every=10, distribution="uniform")
    net = made([(6, 10), (8, 10)])
    begin(method, net)
    for step in (10, 40, 70):
        before = [flat(layer.mask).astype(bool) for layer in net.layers]
        parts = [[flat(t) for t in (layer.weight, layer.memory["momentum"])] for layer in net.layers]
        update(method, net, Clock(step, 100))
        ratio = 0.15 * (1 + math.cos(math.pi * step / 75))  # 0 at 75 % of training
        assert method.regrow_ratio(Clock(step, 100)) == pytest.approx(ratio)
        expected = plain.regenerate(*zip(*parts, strict=True), before, ratio, math.floor)
        assert equal([flat(layer.mask).astype(bool) for layer in net.layers], expected)
        assert net.active.tolist() == [24, 32]


def test_all_weights_may_move() -> None:
    """But for the floor, which is not dropped; then layers of equal momentum share in proportion to it."""
    net = made([(2, 10), (4, 10)], [torch.ones(2, 10), torch.ones(4, 10)])
    method = SNFS(sparsity=0.5, every=10, regrow=1.0, regrow_end=1.0)
    begin(method, net)
    update(method, net, Clock(10, 100))
    assert (int(net.regrown), int(net.active.sum())) == (28, 30)


def test_momentum_without_decay_is_the_sum_of_all_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 5, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layer = granet.sparsify(model, optimizer, SNFS(sparsity=0.5, every=4, momentum=1), total_steps=12).layers["weight"]
    total = torch.zeros(5, 6)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        total += model.weight.grad
        optimizer.step()
        torch.testing.assert_close(layer.memory["momentum"], total)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_momentum_is_that_of_all_weights_on_or_off(dtype: torch.dtype) -> None:
    """A run of steps against the average of the gradients that backward left; the optimizer's buffer is masked."""
    torch.manual_seed(0)
    model = nn.Linear(6, 5, bias=False).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = granet.sparsify(model, optimizer, SNFS(sparsity=0.5, every=4), total_steps=12)
    layer = sparsifier.layers["weight"]
    average = torch.zeros(5, 6, dtype=torch.promote_types(dtype, torch.float32))
    for step in range(1, 9):
        optimizer.zero_grad()
        model(torch.randn(4, 6, dtype=dtype)).square().mean().backward()
        average = 0.9 * average + 0.1 * model.weight.grad.to(average.dtype)
        optimizer.step()
        torch.testing.assert_close(layer.memory["momentum"], average, rtol=1e-5, atol=1e-8)
        assert torch.count_nonzero(layer.memory["momentum"]) == 30
        assert torch.count_nonzero(optimizer.state[model.weight]["momentum_buffer"][~layer.mask]) == 0
        assert sparsifier.sparsity == 0.5, step
    assert [record.regrown for record in sparsifier.history] == [6, 2]  # 15 * 0.37625 and 15 * 0.12875, rounded up


def test_the_defaults_are_the_published_ones() -> None:
    method, fixed = SNFS(sparsity=0.9), SNFSFixed(sparsity=0.9)
    assert (method.regrow, method.regrow_end, method.every, method.momentum) == (0.5, 0.005, "1ep", 0.9)
    assert (method.distribution, fixed.distribution) == ("uniform", "erk")
    assert (fixed.regrow, fixed.every, fixed.end, fixed.momentum) == (0.3, 100, "75%", 0.9)

"""Whole blocks and filters that move: what SNFS, DSR and Deep-R drop and grow, against the rule in a few lines."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from granet.net import make_net
from granet.scores import magnitude, momentum
from granet.weights import SparseLayer

UNITS = pytest.mark.parametrize("pattern", ["filter", "4x1"])


def made(pattern: str, seed: int = 0) -> Any:
    """Layers of 9 and of 72 weights for each filter."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for index, shape in enumerate([(16, 1, 3, 3), (8, 72)]):
        layer = SparseLayer.of(str(index), nn.Parameter(torch.randn(shape, generator=generator)), index, seed)
        layer.memory["momentum"] = torch.randn(shape, generator=generator)
        layers.append(layer)
    return make_net(layers, 1, pattern, 0.5)


def moved(units, net: Any, method: granet.Method, step: int) -> list[tuple[SparseLayer, Tensor, Tensor]]:
    """Layer by layer: the active units before and after."""
    before = [units.active(layer.mask.clone(), method.pattern) for layer in net.layers]
    net.open(step, net.layers, torch.tensor(True))
    method.update(net, granet.Clock(step, 100)) if step else method.begin(net)
    change = net.commit()
    change.write_weights()
    change.write_survivors()
    for layer in net.layers:
        layer.weight.data.mul_(layer.mask)
    change.write_masks()
    assert net.active.tolist() == [layer.active for layer in net.layers]
    after = [units.active(layer.mask, method.pattern) for layer in net.layers]
    return list(zip(net.layers, before, after, strict=True))


def shared_out(total: float, demand: Tensor, rooms: Tensor) -> Tensor:
    """Shares in proportion to demand; what a full layer cannot take is shared out among the others."""
    full = torch.zeros(len(rooms), dtype=torch.bool)
    while True:
        left = total - rooms[full].sum()
        shares = torch.where(full, rooms, left * demand / demand[~full].sum())
        if not (more := shares > rooms).any():
            return shares
        full |= more


@UNITS
@pytest.mark.parametrize("seed", range(4))
def test_snfs_shares_out_whole_units_which_grow_by_mean_momentum(units, pattern: str, seed: int) -> None:
    method, net = granet.SNFS(sparsity=0.5, every=10, pattern=pattern), made(pattern, seed)
    moved(units, net, method, 0)
    largest = int(net.quanta.max())
    for step in range(10, 100, 10):
        demand = torch.stack([layer.memory["momentum"][layer.mask].abs().mean() for layer in net.layers])
        for layer in net.layers:
            layer.weight.data.add_(torch.randn_like(layer.weight) * layer.mask)
        sizes = [units.split(layer.weight.detach().abs().clone(), pattern).mean(1) for layer in net.layers]
        ratio, lacking, grown = method.regrow_ratio(granet.Clock(step, 100)), -net.numel / 2, []
        for (layer, before, after), size in zip(moved(units, net, method, step), sizes, strict=True):
            less = max(1, int(before.sum()) - math.ceil(ratio * float(before.sum())))
            floor = size[before].sort(descending=True).values[less - 1]
            survivors = before & (size >= floor)
            new = after & ~survivors
            momentum = units.split(layer.memory["momentum"].abs(), pattern).mean(1)
            off = ~after
            assert (survivors & ~after).sum() == 0
            assert not new.any() or not off.any() or momentum[new].min() > momentum[off].max()
            quantum = units.split(layer.weight, pattern).shape[1]
            lacking += int(survivors.sum()) * quantum
            grown.append((int(new.sum()) * quantum, int((~survivors).sum()) * quantum, quantum))
        assert abs(sum(layer.active for layer in net.layers) - net.numel / 2) <= largest / 2
        rooms = torch.tensor([room for _, room, _ in grown])
        shares = shared_out(-lacking, demand, rooms)
        for (count, room, quantum), share in zip(grown, shares, strict=True):
            assert abs(count - share) < largest
            assert count <= room and count % quantum == 0


@UNITS
def test_snfs_fixed_keeps_the_counts_and_grows_by_mean_momentum(units, pattern: str) -> None:
    method, net = granet.SNFSFixed(sparsity=0.5, every=10, pattern=pattern), made(pattern)
    moved(units, net, method, 0)
    for layer, before, after in moved(units, net, method, 10):
        momentum = units.split(layer.memory["momentum"].abs(), pattern).mean(1)
        new = after & ~before
        assert new.sum() == (before & ~after).sum() > 0
        assert momentum[new].min() > momentum[~after & ~before].max()


@UNITS
def test_dsr_drops_units_below_the_threshold_and_grows_others(units, pattern: str) -> None:
    method, net = granet.DSR(sparsity=0.5, every=10, threshold=0.75, pattern=pattern), made(pattern)
    moved(units, net, method, 0)
    gone = 0
    for step in range(10, 100, 10):
        threshold = float(net.memory["threshold"])
        for layer in net.layers:
            layer.weight.data.copy_(torch.randn_like(layer.weight) * layer.mask)
        sizes = [units.split(layer.weight.detach().abs(), pattern).mean(1) for layer in net.layers]
        for (_, before, after), size in zip(moved(units, net, method, step), sizes, strict=True):
            dropped = before & ~after
            assert size[dropped].max() < threshold if dropped.any() else True
            if (before & (size >= threshold)).any() and (~after & ~before).any():  # else some came back, or a floor
                assert size[before & after].min() >= threshold
            gone += int(dropped.sum())
        assert abs(sum(layer.active for layer in net.layers) - net.numel / 2) <= int(net.quanta.max()) / 2
    assert gone > 0


@UNITS
def test_deep_r_drops_units_whose_signed_sum_is_negative(units, pattern: str) -> None:
    method, net = granet.DeepR(sparsity=0.5, l1=0.0, noise=0.0, pattern=pattern), made(pattern)
    signs = [layer.weight.detach().sign().clone() for layer in net.layers]
    moved(units, net, method, 0)
    active = [layer.active for layer in net.layers]
    seen = 0
    for step in range(1, 30):
        for layer in net.layers:
            layer.weight.data.add_(torch.randn_like(layer.weight) * layer.mask)
        weights = [layer.weight.detach().clone() for layer in net.layers]
        sums = [units.split(weight * sign, pattern).sum(1) for weight, sign in zip(weights, signs, strict=True)]
        for (layer, before, after), total, weight in zip(moved(units, net, method, step), sums, weights, strict=True):
            crossed = before & (total < 0)
            assert (before & ~crossed & ~after).sum() == 0
            assert not units.split(layer.weight.detach(), pattern)[~before | crossed].any()  # new ones start at zero
            stay = units.join(before & ~crossed, weight, pattern)
            assert torch.equal(layer.weight.detach()[stay], weight[stay])
            seen += int(crossed.sum())
        assert [layer.active for layer in net.layers] == active
    assert seen > 10


def test_deep_r_lets_each_group_draw_what_it_lost(units) -> None:
    method, layer = granet.DeepR(sparsity=0.5, l1=0.0, noise=0.0, pattern="2:4"), made("1x1").layers[1]
    layer.identity = replace(layer.identity, index=0)
    net = make_net([layer], 1, "2:4", 0.5)
    for step in range(20):
        net.layers[0].weight.data.add_(torch.randn_like(net.layers[0].weight) * net.layers[0].mask)
        net.open(step, net.layers, torch.tensor(True))
        method.update(net, granet.Clock(step, 100)) if step else method.begin(net)
        net.commit().write_masks()
        assert (net.layers[0].mask.view(-1, 4).sum(1) == 2).all()
    assert int(net.regrown) > 0


@pytest.mark.parametrize("pattern", ["filter", "4x1", "fan-in"])
def test_prune_then_regenerate_is_the_two_in_turn(pattern: str) -> None:
    masks = []
    for together in (True, False):
        net = made(pattern)
        net.open(1, net.layers, torch.tensor(True))
        net.prune_to(0.5, magnitude)
        if not together:
            net.commit().write_masks()
            net.open(1, net.layers, torch.tensor(True))
        net.regenerate(0.4, drop=magnitude, grow=momentum)
        net.commit().write_masks()
        assert net.active.tolist() == [layer.active for layer in net.layers]
        masks.append([layer.mask for layer in net.layers])
    assert all(map(torch.equal, *masks))


@pytest.mark.parametrize("pattern", ["filter", "4x1", "fan-in"])
def test_grow_makes_whole_quanta(pattern: str) -> None:
    net = made(pattern)
    net.open(0, net.layers, torch.tensor(True))
    granet.Static(sparsity=0.5, pattern=pattern).begin(net)
    net.commit().write_masks()
    before = net.active.clone()
    net.open(1, net.layers, torch.tensor(True))
    quanta = net.quanta
    net.grow(quanta + quanta // 2, magnitude)
    net.commit().write_masks()
    assert net.active.tolist() == [layer.active for layer in net.layers] == (before + quanta).tolist()

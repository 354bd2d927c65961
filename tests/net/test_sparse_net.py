"""The moves that methods are made of, on a net of a few weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from granet.distributions import Uniform, counts, distribution, kept
from granet.layers import SparseLayer
from granet.net import SparseNet, make_net
from granet.schedules import cubic
from granet.scores import gradient, magnitude, random, random_elsewhere

YES, NO = torch.tensor(True), torch.tensor(False)
SHAPES = [(8, 3, 3, 3), (10, 8), (4, 10)]


def make(shapes: Sequence[tuple[int, ...]] = SHAPES, *, seed: int = 0, floor: int = 1) -> SparseNet:
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for index, shape in enumerate(shapes):
        layer = SparseLayer(f"{index}.weight", nn.Parameter(torch.randn(shape, generator=generator)), index, seed)
        layer.gradient = torch.randn(shape, generator=generator)
        layers.append(layer)
    return SparseNet(layers, floor)


def begin(net: SparseNet, draw: int = 1, accept: Tensor = YES) -> SparseNet:
    net.open(draw, net.layers, accept)
    return net


def masks(net: SparseNet) -> list[Tensor]:
    return [layer.mask.clone() for layer in net.layers]


def sprouted(sparsity: float = 0.5, **options: int) -> SparseNet:
    net = begin(make(**options), draw=0)
    net.sprout(sparsity, distribution("erk"))
    net.commit()
    return net


def check_books(net: SparseNet) -> None:
    assert net.active.tolist() == [layer.active for layer in net.layers]


# Sprouting.


@pytest.mark.parametrize("name", ["uniform", "er", "erk"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
def test_sprouting_fills_the_shares_exactly(name: str, sparsity: float) -> None:
    net = begin(make())
    net.sprout(sparsity, distribution(name))
    net.commit()
    assert net.active.tolist() == net.shares(sparsity, distribution(name))
    assert int(net.active.sum()) == kept(net.numel, sparsity)
    check_books(net)


def test_sprouting_is_random_and_repeatable() -> None:
    first, again, other = sprouted(seed=1), sprouted(seed=1), sprouted(seed=2)
    assert all(map(torch.equal, masks(first), masks(again)))
    assert not all(map(torch.equal, masks(first), masks(other)))


def test_every_position_is_as_likely_as_any_other() -> None:
    hits = torch.zeros(8, 3, 3, 3)
    for seed in range(400):
        hits += sprouted(0.5, seed=seed).layers[0].mask
    share = sprouted(0.5).layers[0].density
    deviation = math.sqrt(400 * share * (1 - share))
    assert (hits - 400 * share).abs().max() < 5 * deviation


def test_shares_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"total=3: must lie between 6 .floor=2"):
        make(floor=2).shares(1 - 3 / 336, distribution("erk"))


# Pruning.


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.77, 0.95])
def test_global_pruning_keeps_the_largest_of_all(sparsity: float) -> None:
    net = begin(make())
    net.prune_to(sparsity, magnitude)
    net.commit()
    everything = np.concatenate([layer.weight.detach().abs().flatten() for layer in net.layers])
    keep = np.zeros(net.numel, bool)
    keep[np.argsort(-everything, kind="stable")[: kept(net.numel, sparsity)]] = True
    assert np.concatenate([mask.flatten() for mask in masks(net)]).tolist() == keep.tolist()
    assert int(net.pruned) == net.numel - kept(net.numel, sparsity)
    check_books(net)


@pytest.mark.parametrize("floor", [0, 1, 5])
def test_a_layer_of_small_weights_keeps_its_floor_and_the_total_holds(floor: int) -> None:
    net = begin(make(floor=floor))
    net.layers[1].weight.data.mul_(1e-6)
    net.prune_to(0.9, magnitude)
    net.commit()
    assert net.layers[1].active == floor
    assert int(net.active.sum()) == kept(net.numel, 0.9)
    best = net.layers[1].weight.detach().abs().flatten().topk(floor).indices
    assert net.layers[1].mask.flatten()[best].all()
    check_books(net)


def test_what_is_sparser_already_is_left_alone() -> None:
    net = sprouted(0.8)
    before = masks(net)
    begin(net).prune_to(0.3, magnitude)
    net.commit()
    assert all(map(torch.equal, before, masks(net)))
    assert int(net.pruned) == 0


def test_active_zeros_count_as_active() -> None:
    """The official code took a weight of exactly 0 for an inactive one."""
    net = sprouted(0.5)
    for layer in net.layers:
        layer.weight.data.zero_()
    begin(net).prune_to(0.6, magnitude)
    net.commit()
    assert int(net.active.sum()) == kept(net.numel, 0.6)
    check_books(net)


def test_layers_that_cannot_move_are_made_up_for_by_the_others() -> None:
    net = sprouted(0.5)
    still = net.layers[1].mask.clone()
    net.open(1, [net.layers[0], net.layers[2]], YES)
    net.prune_to(0.7, magnitude)
    net.regenerate(0.3, drop=magnitude, grow=gradient)
    net.commit()
    assert torch.equal(net.layers[1].mask, still)
    assert int(net.active.sum()) == kept(net.numel, 0.7)
    check_books(net)


def test_uniform_pruning_is_by_magnitude_in_each_layer() -> None:
    net = begin(make())
    net.prune_to(0.75, magnitude, Uniform())
    net.commit()
    for layer in net.layers:
        assert layer.active == layer.numel // 4
        best = layer.weight.detach().abs().flatten().topk(layer.active).indices
        assert layer.mask.flatten()[best].all()


def test_uniform_pruning_step_by_step_loses_no_weight_to_rounding() -> None:
    """Largest remainders may give a layer one weight more of a smaller total, which it no longer has."""
    shapes = [(25,), (26,), (10,), (14,)]
    assert counts(shapes, [18 / 75] * 4, 18, 1)[2] > counts(shapes, [19 / 75] * 4, 19, 1)[2]
    net = make(shapes)
    for total in (19, 18):
        begin(net).prune_to(1 - total / 75, magnitude, Uniform())
        net.commit()
        assert int(net.active.sum()) == total
        check_books(net)


@settings(max_examples=60)
@given(
    st.lists(st.integers(2, 60).map(lambda n: (n,)), min_size=1, max_size=6),
    st.sampled_from([0.6, 0.8, 0.9]),
    st.sampled_from([Uniform(), Uniform(last_density=0.2), Uniform(dense_first=True), Uniform(0.2, True)]),
)
def test_uniform_pruning_along_a_schedule_is_exact(shapes, final: float, scope: Uniform) -> None:
    net = make(shapes)
    try:
        net.shares(final, scope)
    except ValueError:
        return
    for number in range(1, 21):
        sparsity = cubic(0, final, number / 20)
        begin(net, number).prune_to(sparsity, magnitude, scope)
        net.commit()
        assert int(net.active.sum()) == kept(net.numel, sparsity)
        assert net.active.min() >= 1


# Regeneration.


def regenerated(weight: np.ndarray, grad: np.ndarray, mask: np.ndarray, moved: int) -> np.ndarray:
    """Keep all but the smallest ``moved``, then take the ``moved`` largest gradients of all that is not kept."""
    inside = np.flatnonzero(mask)
    stay = inside[np.argsort(-np.abs(weight[inside]), kind="stable")][: len(inside) - moved]
    outside = np.setdiff1d(np.arange(len(mask)), stay)
    new = outside[np.argsort(-np.abs(grad[outside]), kind="stable")][:moved]
    result = np.zeros(len(mask), bool)
    result[stay], result[new] = True, True
    return result


@settings(max_examples=60)
@given(
    st.integers(0, 10**6), st.floats(0, 0.99), st.floats(0, 0.99), st.booleans(),
    st.sampled_from([(torch.ceil, math.ceil), (torch.floor, math.floor)]),
)  # fmt: skip
def test_regeneration_is_drop_then_grow(seed: int, sparsity: float, ratio: float, coarse: bool, rounding) -> None:
    net = make(seed=seed)
    sparsity = min(sparsity, 1 - 3 / net.numel)
    begin(net, 0).sprout(sparsity, distribution("erk"))
    net.commit()
    if coarse:  # many ties, many zeros
        for layer in net.layers:
            layer.weight.data.round_()
            layer.gradient.round_()
    before = masks(net)
    begin(net).regenerate(ratio, drop=magnitude, grow=gradient, rounding=rounding[0])
    net.commit()
    moved = [rounding[1](int(mask.sum()) * ratio) for mask in before]
    for layer, mask, count in zip(net.layers, before, moved, strict=True):
        flat = [t.detach().flatten().numpy() for t in (layer.weight, layer.gradient, mask)]
        assert layer.mask.flatten().tolist() == regenerated(*flat, count).tolist()
        assert layer.active == int(mask.sum())
    assert int(net.regrown) == sum(moved)
    check_books(net)


@pytest.mark.parametrize("rounding", [torch.ceil, torch.floor])
@pytest.mark.parametrize(("ratio", "moved"), [(-1e-17, 0), (1 + 1e-15, 1)])
def test_a_share_of_a_schedule_may_be_out_by_rounding(ratio: float, moved: int, rounding) -> None:
    net = sprouted(0.7)
    before = [layer.active for layer in net.layers]
    begin(net).regenerate(ratio, drop=magnitude, grow=gradient, rounding=rounding)
    net.commit()
    assert [layer.active for layer in net.layers] == before
    assert int(net.regrown) == moved * sum(before)
    check_books(net)


@pytest.mark.parametrize("pattern", ["weight", "2x2", "fan-in"])
@pytest.mark.parametrize("ratio", [-0.1, 1.5, 30, math.nan])
def test_other_shares_are_refused(ratio: float, pattern: str) -> None:
    """More than all of the weights would go, more would grow than there was room for, and no count would hold."""
    net = make_net(make([(8, 4), (6, 8)]).layers, 1, pattern, 0.5)
    with pytest.raises(ValueError, match=f"ratio={ratio}: must be in \\[0, 1\\], a share of the active weights"):
        begin(net).regenerate(ratio, drop=magnitude, grow=random)


def test_growth_without_any_gradient_never_picks_an_active_position() -> None:
    """Dead channels: all scores tie at 0, and the layer must still not lose a weight."""
    net = sprouted(0.7)
    for layer in net.layers:
        layer.gradient.zero_()
    before = [layer.active for layer in net.layers]
    begin(net).regenerate(0.5, drop=magnitude, grow=gradient)
    net.commit()
    assert [layer.active for layer in net.layers] == before


def test_a_dropped_weight_with_the_largest_gradient_returns_at_once() -> None:
    net = sprouted(0.5)
    layer = net.layers[1]
    active = layer.mask.flatten().nonzero().squeeze(1)
    smallest = active[layer.weight.detach().abs().flatten()[active].argmin()]
    layer.gradient.view(-1)[smallest] = 99
    before = layer.mask.clone()
    net.open(1, [layer], YES)
    net.regenerate(1e-9, drop=magnitude, grow=gradient)  # ceil: one weight
    net.commit()
    assert int(net.regrown) == 1
    assert torch.equal(layer.mask, before)


def test_prune_then_regenerate_is_the_two_in_turn() -> None:
    together, apart = sprouted(0.3), sprouted(0.3)
    begin(together).prune_to(0.8, magnitude)
    together.regenerate(0.4, drop=magnitude, grow=gradient)
    together.commit()
    begin(apart).prune_to(0.8, magnitude)
    apart.commit()
    begin(apart).regenerate(0.4, drop=magnitude, grow=gradient)
    apart.commit()
    assert all(map(torch.equal, masks(together), masks(apart)))
    check_books(together)


def test_prune_and_drop_may_use_different_scores() -> None:
    def opposite(layer: SparseLayer, draw: int) -> Tensor:
        return 1 / layer.weight.detach()

    together, apart = sprouted(0.3), sprouted(0.3)
    begin(together).prune_to(0.8, magnitude)
    together.regenerate(0.4, drop=opposite, grow=gradient)
    together.commit()
    begin(apart).prune_to(0.8, magnitude)
    apart.commit()
    begin(apart).regenerate(0.4, drop=opposite, grow=gradient)
    apart.commit()
    assert all(map(torch.equal, masks(together), masks(apart)))


def test_random_growth_differs_from_draw_to_draw() -> None:
    grown = []
    for draw in (1, 2, 1):
        net = begin(sprouted(0.8), draw)
        net.regenerate(0.5, drop=magnitude, grow=random)
        net.commit()
        grown.append(masks(net))
    assert all(map(torch.equal, grown[0], grown[2]))
    assert not all(map(torch.equal, grown[0], grown[1]))


# The proposal.


def test_a_proposal_that_is_not_accepted_changes_nothing() -> None:
    net = sprouted(0.3)
    before = masks(net)
    begin(net, accept=NO).prune_to(0.8, magnitude)
    net.regenerate(0.4, drop=magnitude, grow=gradient)
    net.commit()
    assert all(map(torch.equal, before, masks(net)))
    assert (int(net.pruned), int(net.regrown)) == (0, 0)
    check_books(net)


def test_not_even_when_weights_and_gradients_are_not_finite() -> None:
    net = sprouted(0.3)
    before = masks(net)
    for layer in net.layers:
        layer.weight.data.view(-1)[::3] = math.nan
        layer.gradient.view(-1)[::2] = math.inf
    begin(net, accept=NO).prune_to(0.8, magnitude)
    net.regenerate(0.4, drop=magnitude, grow=gradient)
    net.commit()
    assert all(map(torch.equal, before, masks(net)))
    check_books(net)


def test_masks_change_in_place_and_keep_their_layout() -> None:
    plain, last = make(), make()
    for layer in last.layers[:1]:
        layer.weight.data = layer.weight.data.to(memory_format=torch.channels_last)
        layer.gradient = layer.gradient.to(memory_format=torch.channels_last)
        layer.__post_init__()
    places = [(layer.mask.data_ptr(), layer.mask.stride()) for layer in last.layers]
    for net in (plain, last):
        begin(net).prune_to(0.8, magnitude)
        net.regenerate(0.4, drop=magnitude, grow=gradient)
        net.commit()
    assert [(layer.mask.data_ptr(), layer.mask.stride()) for layer in last.layers] == places
    assert all(map(torch.equal, masks(plain), masks(last)))


# Drop and grow as moves of their own.


def test_drop_takes_the_smallest_and_leaves_the_floor() -> None:
    net = begin(sprouted(0.5, floor=2))
    before = masks(net)
    active = net.active.tolist()
    gone = net.drop(torch.tensor([3, 0, 999]), magnitude)
    net.commit()
    assert gone.tolist() == [3, 0, active[2] - 2]
    for layer, mask, count in zip(net.layers, before, gone.tolist(), strict=True):
        sizes = layer.weight.detach().abs().masked_fill(~mask, math.inf).flatten()
        expected = mask.flatten().clone()
        expected[sizes.argsort(stable=True)[:count]] = False
        assert torch.equal(layer.mask.flatten(), expected)
    check_books(net)


def test_layers_can_be_brought_to_other_counts_by_one_drop_and_one_grow() -> None:
    """The differences are below 0 in layers that are to go the other way."""
    net = begin(make())
    net.sprout(0.5, distribution("uniform"))
    wanted = net.counts + torch.tensor([-20, 12, 8])
    gone = net.drop(net.counts - wanted, magnitude)
    net.grow(wanted - net.counts, random)
    net.commit()
    assert gone.tolist() == [20, 0, 0]
    assert [layer.active for layer in net.layers] == wanted.tolist()
    check_books(net)


def test_grow_takes_the_largest_and_at_most_what_there_is() -> None:
    net = begin(sprouted(0.5))
    before = masks(net)
    room = net.room.tolist()
    net.grow(torch.tensor([4, 0, 999]), gradient)
    net.commit()
    assert net.active.tolist() == [int(mask.sum()) + n for mask, n in zip(before, (4, 0, room[2]), strict=True)]
    assert int(net.regrown) == 4 + room[2]
    new = net.layers[0].gradient.abs().masked_fill(before[0], -1).flatten().topk(4).indices
    assert net.layers[0].mask.flatten()[new].all()
    check_books(net)


def test_remove_switches_off_named_places() -> None:
    net = begin(sprouted(0.5))
    before = masks(net)
    places = [torch.rand(mask.shape, generator=torch.Generator().manual_seed(i)) < 0.3 for i, mask in enumerate(before)]
    gone = net.remove(places)
    net.commit()
    assert gone.tolist() == [int((mask & where).sum()) for mask, where in zip(before, places, strict=True)]
    assert all(
        torch.equal(mask & ~where, layer.mask) for mask, where, layer in zip(before, places, net.layers, strict=True)
    )
    check_books(net)


def test_moves_that_are_not_accepted_take_none() -> None:
    net = begin(sprouted(0.5), accept=NO)
    before = masks(net)
    assert net.drop(torch.tensor([3, 3, 3]), magnitude).tolist() == [0, 0, 0]
    assert net.remove([torch.ones_like(mask) for mask in before]).tolist() == [0, 0, 0]
    net.grow(torch.tensor([3, 3, 3]), gradient)
    net.commit()
    assert all(map(torch.equal, before, masks(net)))
    assert int(net.regrown) == 0
    check_books(net)


def test_what_a_method_may_look_at() -> None:
    net = begin(sprouted(0.5))
    pairs = [(layer.weight.detach().abs()[layer.mask], layer.numel) for layer in net.layers]
    assert net.counts.tolist() == [len(weights) for weights, _ in pairs]
    assert net.room.tolist() == [numel - len(weights) for weights, numel in pairs]
    assert net.below(torch.tensor(0.7)).tolist() == [int((weights < 0.7).sum()) for weights, _ in pairs]
    assert net.mean_size(magnitude).tolist() == pytest.approx([float(weights.mean()) for weights, _ in pairs])


def test_layers_without_a_gradient_are_left_out_of_every_count() -> None:
    net = sprouted(0.5)
    net.open(1, net.layers[::2], YES)
    assert net.counts.tolist() == net.active[::2].tolist()
    net.grow(net.drop(torch.tensor([2, 3]), magnitude), gradient)
    net.commit()
    assert int(net.regrown) == 5
    check_books(net)


@pytest.mark.parametrize("count", [5, 60])
def test_random_growth_elsewhere_takes_places_that_were_off_first(count: int) -> None:
    """Of 80 weights 40 are on; 30 go. 5 find a new place each; of 60 only 40 do, and 20 return."""
    net = begin(make([(8, 10)]), draw=0)
    net.sprout(0.5, Uniform())
    net.commit()
    before = net.layers[0].mask.clone()
    begin(net, 3).drop(torch.tensor([30]), magnitude)
    net.grow(torch.tensor([count]), random_elsewhere)
    net.commit()
    after = net.layers[0].mask
    assert int((after & ~before).sum()) == min(count, 40)
    assert int(after.sum()) == 10 + count


def test_what_was_ever_zeroed_in_a_proposal_starts_anew_and_all_is_zeroed_at_once() -> None:
    """Two rounds of dropping and growing; weights that the first one zeroed may have outlived the second."""
    net, zeroed = make([(8, 10)]), []
    layer = net.layers[0]
    net.open(1, net.layers, YES, zero=lambda: zeroed.append(layer.mask.clone()))
    survivors = torch.ones(8, 10, dtype=torch.bool)
    for drop, grow in ((magnitude, random), (gradient, random)):
        net.drop(torch.tensor([30]), drop)
        net.zero_pruned()
        survivors &= net.proposed()["0.weight"]
        net.grow(torch.tensor([20]), grow)
    survivors &= net.proposed()["0.weight"]
    last = net.proposed()["0.weight"].clone()
    assert net.commit()
    assert [mask.tolist() for mask in zeroed] == [survivors.tolist()]
    assert (last & ~survivors).any()
    assert layer.mask.tolist() == last.tolist()
    assert not begin(net, 2).commit()

"""A proposal as a whole, and drop, grow and remove as moves of their own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from granet.distributions import Uniform, distribution
from granet.net import make_net
from granet.scores import gradient, magnitude, random, random_elsewhere

YES, NO = torch.tensor(True), torch.tensor(False)


def test_a_proposal_that_is_not_accepted_changes_nothing(kit: Any) -> None:
    net = kit.sprouted(0.3)
    before = kit.masks(net)
    kit.begin(net, accept=NO).prune_to(0.8, magnitude)
    net.regenerate(0.4, drop=magnitude, grow=gradient)
    net.commit().write_masks()
    assert all(map(torch.equal, before, kit.masks(net)))
    assert (int(net.pruned), int(net.regrown)) == (0, 0)
    kit.check_books(net)


def test_not_even_when_weights_and_gradients_are_not_finite(kit: Any) -> None:
    net = kit.sprouted(0.3)
    before = kit.masks(net)
    for layer in net.layers:
        layer.weight.data.view(-1)[::3] = math.nan
        layer.gradient.view(-1)[::2] = math.inf
    kit.begin(net, accept=NO).prune_to(0.8, magnitude)
    net.regenerate(0.4, drop=magnitude, grow=gradient)
    net.commit().write_masks()
    assert all(map(torch.equal, before, kit.masks(net)))
    kit.check_books(net)


def test_masks_change_in_place_and_keep_their_layout(kit: Any) -> None:
    plain, last = kit.make(), kit.make()
    for layer in last.layers[:1]:
        layer.weight.data = layer.weight.data.to(memory_format=torch.channels_last)
        layer.gradient = layer.gradient.to(memory_format=torch.channels_last)
        layer.__post_init__()
    places = [(layer.mask.data_ptr(), layer.mask.stride()) for layer in last.layers]
    for net in (plain, last):
        kit.begin(net).prune_to(0.8, magnitude)
        net.regenerate(0.4, drop=magnitude, grow=gradient)
        net.commit().write_masks()
    assert [(layer.mask.data_ptr(), layer.mask.stride()) for layer in last.layers] == places
    assert all(map(torch.equal, kit.masks(plain), kit.masks(last)))


def test_drop_takes_the_smallest_and_leaves_the_floor(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5, floor=2))
    before = kit.masks(net)
    active = net.active.tolist()
    gone = net.drop(torch.tensor([3, 0, 999]), magnitude)
    net.commit().write_masks()
    assert gone.tolist() == [3, 0, active[2] - 2]
    for layer, mask, count in zip(net.layers, before, gone.tolist(), strict=True):
        sizes = layer.weight.detach().abs().masked_fill(~mask, math.inf).flatten()
        expected = mask.flatten().clone()
        expected[sizes.argsort(stable=True)[:count]] = False
        assert torch.equal(layer.mask.flatten(), expected)
    kit.check_books(net)


def test_the_floor_of_units_is_a_whole_one(kit: Any) -> None:
    net = kit.begin(make_net(kit.make([(10, 4), (10, 5)]).layers, 1, "filter", 0.5))
    assert net.drop(torch.tensor([999, 999]), magnitude).tolist() == [36, 45]
    net.commit().write_masks()
    assert net.active.tolist() == [4, 5]


@pytest.mark.parametrize("drop_first", [True, False])
def test_layers_can_be_brought_to_other_counts_by_one_drop_and_one_grow(kit: Any, drop_first: bool) -> None:
    """The differences are below 0 in layers that are to go the other way."""
    net = kit.begin(kit.make())
    net.sprout(0.5, distribution("uniform"))
    wanted = net.counts + torch.tensor([-20, 12, 8])
    if not drop_first:
        net.grow(wanted - net.counts, random)
    gone = net.drop(net.counts - wanted, magnitude)
    if drop_first:
        net.grow(wanted - net.counts, random)
    net.commit().write_masks()
    assert gone.tolist() == [20, 0, 0]
    assert [layer.active for layer in net.layers] == wanted.tolist()
    kit.check_books(net)


def test_grow_takes_the_largest_and_at_most_what_there_is(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5))
    before = kit.masks(net)
    room = net.room.tolist()
    net.grow(torch.tensor([4, 0, 999]), gradient)
    net.commit().write_masks()
    assert net.active.tolist() == [int(mask.sum()) + n for mask, n in zip(before, (4, 0, room[2]), strict=True)]
    assert int(net.regrown) == 4 + room[2]
    new = net.layers[0].gradient.abs().masked_fill(before[0], -1).flatten().topk(4).indices
    assert net.layers[0].mask.flatten()[new].all()
    kit.check_books(net)


def test_remove_switches_off_named_places(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5))
    before = kit.masks(net)
    places = [torch.rand(mask.shape, generator=torch.Generator().manual_seed(i)) < 0.3 for i, mask in enumerate(before)]
    gone = net.remove(places)
    net.commit().write_masks()
    assert gone.tolist() == [int((mask & where).sum()) for mask, where in zip(before, places, strict=True)]
    assert all(
        torch.equal(mask & ~where, layer.mask) for mask, where, layer in zip(before, places, net.layers, strict=True)
    )
    kit.check_books(net)


def test_moves_that_are_not_accepted_take_none(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5), accept=NO)
    before = kit.masks(net)
    assert net.drop(torch.tensor([3, 3, 3]), magnitude).tolist() == [0, 0, 0]
    assert net.remove([torch.ones_like(mask) for mask in before]).tolist() == [0, 0, 0]
    net.grow(torch.tensor([3, 3, 3]), gradient)
    net.commit().write_masks()
    assert all(map(torch.equal, before, kit.masks(net)))
    assert int(net.regrown) == 0
    kit.check_books(net)


def test_what_a_method_may_look_at(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5))
    pairs = [(layer.weight.detach().abs()[layer.mask], layer.numel) for layer in net.layers]
    assert net.counts.tolist() == [len(weights) for weights, _ in pairs]
    assert net.room.tolist() == [numel - len(weights) for weights, numel in pairs]
    assert net.below(torch.tensor(0.7)).tolist() == [int((weights < 0.7).sum()) for weights, _ in pairs]
    assert net.mean_size(magnitude).tolist() == pytest.approx([float(weights.mean()) for weights, _ in pairs])


def test_sizes_at_the_start_stay_what_they_were_while_a_proposal_is_open(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5))
    before = net.below(torch.tensor(0.7)).tolist(), net.mean_size(magnitude).tolist()
    net.drop(torch.tensor([10, 10, 5]), magnitude)
    net.zero_pruned()
    net.grow(torch.tensor([5, 5, 5]), random)
    assert (net.below(torch.tensor(0.7)).tolist(), net.mean_size(magnitude).tolist()) == before
    net.commit().write_masks()
    assert kit.begin(net, 2).below(torch.tensor(100.0)).tolist() == net.counts.tolist()


def test_layers_without_a_gradient_are_left_out_of_every_count(kit: Any) -> None:
    net = kit.sprouted(0.5)
    net.open(1, net.layers[::2], YES)
    assert net.counts.tolist() == net.active[::2].tolist()
    net.grow(net.drop(torch.tensor([2, 3]), magnitude), gradient)
    net.commit().write_masks()
    assert int(net.regrown) == 5
    kit.check_books(net)


@pytest.mark.parametrize("count", [5, 60])
def test_random_growth_elsewhere_takes_places_that_were_off_first(kit: Any, count: int) -> None:
    """Of 80 weights 40 are on; 30 go. 5 find a new place each; of 60 only 40 do, and 20 return."""
    net = kit.begin(kit.make([(8, 10)]), draw=0)
    net.sprout(0.5, Uniform())
    net.commit().write_masks()
    before = net.layers[0].mask.clone()
    kit.begin(net, 3).drop(torch.tensor([30]), magnitude)
    net.grow(torch.tensor([count]), random_elsewhere)
    net.commit().write_masks()
    after = net.layers[0].mask
    assert int((after & ~before).sum()) == min(count, 40)
    assert int(after.sum()) == 10 + count


def test_what_was_ever_zeroed_in_a_proposal_starts_anew(kit: Any) -> None:
    """Two rounds of dropping and growing; weights that the first one zeroed may have outlived the second."""
    net = kit.make([(8, 10)])
    layer = net.layers[0]
    kit.begin(net)
    survivors = torch.ones(8, 10, dtype=torch.bool)
    for drop, grow in ((magnitude, random), (gradient, random)):
        net.drop(torch.tensor([30]), drop)
        net.zero_pruned()
        survivors &= net.proposed()["0.weight"]
        net.grow(torch.tensor([20]), grow)
    survivors &= net.proposed()["0.weight"]
    last = net.proposed()["0.weight"].clone()
    change = net.commit()
    assert layer.mask.all()
    change.write_survivors()
    assert layer.mask.tolist() == survivors.tolist()
    assert (last & ~survivors).any()
    change.write_masks()
    assert layer.mask.tolist() == last.tolist()


def test_a_weight_that_comes_is_no_survivor(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5))
    before = [layer.mask.clone() for layer in net.layers]
    net.grow(net.drop(torch.tensor([10, 10, 5]), magnitude), random)
    change = net.commit()
    assert [layer.mask.tolist() for layer in net.layers] == [mask.tolist() for mask in before]
    change.write_survivors()
    survivors = [layer.mask.clone() for layer in net.layers]
    change.write_masks()
    for layer, mask, survived in zip(net.layers, before, survivors, strict=True):
        assert survived.tolist() == (mask & layer.mask).tolist()
    assert any((layer.mask & ~mask).any() for layer, mask in zip(net.layers, before, strict=True))


def test_a_weight_at_the_threshold_is_not_below_it(kit: Any) -> None:
    net = kit.make([(2, 3), (1, 2)])
    for layer in net.layers:
        layer.weight.data.copy_(torch.tensor([-0.5, 0.5, 0.25, -0.25, 0.75, 0.0])[: layer.numel].view_as(layer.weight))
    assert kit.begin(net).below(torch.tensor(0.5)).tolist() == [3, 0]


def test_what_a_net_lacks_is_nothing_when_it_has_enough(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5))
    assert [int(net.lacking(sparsity)) for sparsity in (0.9, 0.5, 0.25)] == [0, 0, net.numel // 4]
    net.drop(torch.tensor([10, 10, 0]), magnitude)
    assert int(net.lacking(0.5)) == 20


def test_an_empty_layer_has_no_size(kit: Any) -> None:
    net = kit.begin(kit.make(floor=0))
    net.drop(torch.tensor([0, 80, 0]), magnitude)
    net.commit().write_masks()
    sizes = kit.begin(net).mean_size(magnitude).tolist()
    assert sizes[1] == 0 and min(sizes[0], sizes[2]) > 0

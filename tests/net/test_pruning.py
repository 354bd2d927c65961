"""Sprouting and pruning, by one budget for all layers or by one for each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from granet.distributions import Uniform, counts, distribution, kept
from granet.net import make_net
from granet.schedules import cubic
from granet.scores import gradient, magnitude
from refusals import refused

YES = torch.tensor(True)


@pytest.mark.parametrize(
    ("name", "sparsity", "shares"),
    [  # of 216, 80 and 40 weights; ER's densities are as 11/24 to 18/80 to 14/40, ERK's first is 17/216
        ("uniform", 0.0, [216, 80, 40]),
        ("uniform", 0.5, [108, 40, 20]),
        ("uniform", 0.9, [22, 8, 4]),
        ("er", 0.5, [127, 23, 18]),
        ("er", 0.9, [26, 5, 3]),
        ("erk", 0.0, [216, 80, 40]),
        ("erk", 0.5, [62, 66, 40]),  # the last would have 48 and is dense, the others share the rest as 17 to 18
        ("erk", 0.9, [12, 12, 10]),
    ],
)
def test_sprouting_fills_the_shares_exactly(kit: Any, name: str, sparsity: float, shares: list[int]) -> None:
    net = kit.begin(kit.make())
    net.sprout(sparsity, distribution(name))
    net.commit().write_masks()
    assert net.active.tolist() == shares
    kit.check_books(net)


def test_sprouting_is_random_and_repeatable(kit: Any) -> None:
    first, again, other = kit.sprouted(seed=1), kit.sprouted(seed=1), kit.sprouted(seed=2)
    assert all(map(torch.equal, kit.masks(first), kit.masks(again)))
    assert not all(map(torch.equal, kit.masks(first), kit.masks(other)))


def test_sprouting_again_thins_what_is_left(kit: Any) -> None:
    net = kit.begin(kit.sprouted(0.5))
    net.sprout(0.8, distribution("erk"))
    net.commit().write_masks()
    assert net.active.tolist() == [23, 25, 19]
    kit.check_books(net)
    kit.begin(net, 2).sprout(0.3, distribution("erk"))  # sparser already
    net.commit().write_masks()
    assert net.active.tolist() == [23, 25, 19]
    kit.check_books(net)


@pytest.mark.slow
def test_every_position_is_as_likely_as_any_other(kit: Any) -> None:
    hits = torch.zeros(8, 3, 3, 3)
    for seed in range(400):
        hits += kit.sprouted(0.5, seed=seed).layers[0].mask
    share = 1 - kit.sprouted(0.5).layers[0].sparsity
    deviation = math.sqrt(400 * share * (1 - share))
    assert (hits - 400 * share).abs().max() < 5 * deviation


def test_shares_that_cannot_be_are_refused(kit: Any) -> None:
    with refused("total", 3, "6", "floor=2"):
        kit.make(floor=2).shares(1 - 3 / 336, distribution("erk"))
    blocks = make_net(kit.make([(8, 4), (8, 4)]).layers, 1, "4x1", 0.5)
    with refused("total", 6, "8", "floor=1"):
        blocks.shares(1 - 6 / 64, distribution("erk"))


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.77, 0.95])
def test_global_pruning_keeps_the_largest_of_all(kit: Any, sparsity: float) -> None:
    net = kit.begin(kit.make())
    net.prune_to(sparsity, magnitude)
    net.commit().write_masks()
    everything = np.concatenate([layer.weight.detach().abs().flatten() for layer in net.layers])
    keep = np.zeros(net.numel, bool)
    keep[np.argsort(-everything, kind="stable")[: kept(net.numel, sparsity)]] = True
    assert np.concatenate([mask.flatten() for mask in kit.masks(net)]).tolist() == keep.tolist()
    assert int(net.pruned) == net.numel - kept(net.numel, sparsity)
    kit.check_books(net)


@pytest.mark.parametrize("floor", [0, 1, 5])
def test_a_layer_of_small_weights_keeps_its_floor_and_the_total_holds(kit: Any, floor: int) -> None:
    net = kit.begin(kit.make(floor=floor))
    net.layers[1].weight.data.mul_(1e-6)
    net.prune_to(0.9, magnitude)
    net.commit().write_masks()
    assert net.layers[1].active == floor
    assert int(net.active.sum()) == kept(net.numel, 0.9)
    best = net.layers[1].weight.detach().abs().flatten().topk(floor).indices
    assert net.layers[1].mask.flatten()[best].all()
    kit.check_books(net)


def test_what_is_sparser_already_is_left_alone(kit: Any) -> None:
    net = kit.sprouted(0.8)
    before = kit.masks(net)
    kit.begin(net).prune_to(0.3, magnitude)
    net.commit().write_masks()
    assert all(map(torch.equal, before, kit.masks(net)))
    assert int(net.pruned) == 0


def test_active_zeros_count_as_active(kit: Any) -> None:
    """The official code took a weight of exactly 0 for an inactive one."""
    net = kit.sprouted(0.5)
    for layer in net.layers:
        layer.weight.data.zero_()
    kit.begin(net).prune_to(0.6, magnitude)
    net.commit().write_masks()
    assert int(net.active.sum()) == kept(net.numel, 0.6)
    kit.check_books(net)


def test_layers_that_cannot_move_are_made_up_for_by_the_others(kit: Any) -> None:
    net = kit.sprouted(0.5)
    still = net.layers[1].mask.clone()
    net.open(1, [net.layers[0], net.layers[2]], YES)
    net.prune_to(0.7, magnitude)
    net.regenerate(0.3, drop=magnitude, grow=gradient)
    net.commit().write_masks()
    assert torch.equal(net.layers[1].mask, still)
    assert int(net.active.sum()) == kept(net.numel, 0.7)
    kit.check_books(net)


def test_uniform_pruning_is_by_magnitude_in_each_layer(kit: Any) -> None:
    net = kit.begin(kit.make())
    net.prune_to(0.75, magnitude, Uniform())
    net.commit().write_masks()
    for layer in net.layers:
        assert layer.active == layer.numel // 4
        best = layer.weight.detach().abs().flatten().topk(layer.active).indices
        assert layer.mask.flatten()[best].all()


def test_uniform_pruning_step_by_step_loses_no_weight_to_rounding(kit: Any) -> None:
    """Largest remainders may give a layer one weight more of a smaller total, which it no longer has."""
    shapes = [(25,), (26,), (10,), (14,)]
    assert counts(shapes, [18 / 75] * 4, 18, 1)[2] > counts(shapes, [19 / 75] * 4, 19, 1)[2]
    net = kit.make(shapes)
    for total in (19, 18):
        kit.begin(net).prune_to(1 - total / 75, magnitude, Uniform())
        net.commit().write_masks()
        assert int(net.active.sum()) == total
        kit.check_books(net)


def test_what_a_layer_of_units_lacks_goes_to_others_in_the_nearest_whole_units(kit: Any) -> None:
    net = kit.begin(make_net(kit.make([(10, 4), (10, 5)]).layers, 1, "filter", 0.5))
    net.drop(torch.tensor([32, 0]), magnitude)
    assert net.shares(1 - 37 / 90, Uniform()) == [16, 20]
    net.prune_to(1 - 37 / 90, magnitude, Uniform())  # 8 of these 16 are there; 28 are asked of the other layer
    net.commit().write_masks()
    assert net.active.tolist() == [8, 30]
    kit.check_books(net)


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(2, 60).map(lambda n: (n,)), min_size=1, max_size=6),
    st.sampled_from([0.6, 0.8, 0.9]),
    st.sampled_from([Uniform(), Uniform(last_density=0.2), Uniform(dense_first=True), Uniform(0.2, True)]),
)
def test_uniform_pruning_along_a_schedule_is_exact(kit: Any, shapes, final: float, uniform: Uniform) -> None:
    net = kit.make(shapes)
    try:
        net.shares(final, uniform)
    except ValueError:
        return
    for number in range(1, 21):
        sparsity = cubic(0, final, number / 20)
        kit.begin(net, number).prune_to(sparsity, magnitude, uniform)
        net.commit().write_masks()
        assert int(net.active.sum()) == kept(net.numel, sparsity)
        assert net.active.min() >= 1


def test_what_several_moves_prune_and_grow_is_counted_together(kit: Any) -> None:
    net = kit.begin(kit.make())
    net.prune_to(0.5, magnitude)
    net.prune_to(0.75, gradient)
    assert int(net.pruned) == net.numel - kept(net.numel, 0.75)
    for number in (3, 2):
        net.grow(torch.tensor([number, 0, 0]), gradient)
    assert int(net.regrown) == 5


def test_choosing_anew_after_pruning_counts_what_is_gone_in_the_end(kit: Any) -> None:
    net = kit.begin(kit.make())
    net.prune_to(0.75, magnitude)
    net.reselect(0.5, gradient)
    assert int(net.pruned) == net.numel - kept(net.numel, 0.5)
    before = [mask.clone() for mask in net.proposed().values()]
    net.reselect(0.25, gradient)
    came = sum(int((mask & ~old).sum()) for mask, old in zip(net.proposed().values(), before, strict=True))
    assert came == kept(net.numel, 0.25) - kept(net.numel, 0.5)
    assert int(net.pruned) == net.numel - kept(net.numel, 0.25)


def test_n_m_keeps_n_whatever_is_asked_for(kit: Any) -> None:
    net = kit.begin(make_net(kit.make([(4, 8)]).layers, 1, "2:4", 0.5))
    net.prune_to(0.9, magnitude)
    assert net.counts.tolist() == [16]


def test_what_is_dropped_or_removed_and_not_grown_again_counts_as_pruned(kit: Any) -> None:
    """A method of one's own may prune by these moves alone; its records then said that nothing was pruned."""
    net = kit.begin(kit.make())
    gone = net.drop(torch.tensor([30, 20, 0]), magnitude)
    net.grow(torch.tensor([10, 0, 0]), gradient)
    net.commit().write_masks()
    assert (int(net.pruned), int(net.regrown)) == (int(gone.sum()) - 10, 10)
    before = int(net.active.sum())
    kit.begin(net)
    gone = net.remove([layer.weight.detach().abs() < layer.weight.detach().abs().median() for layer in net.layers])
    net.grow(gone, gradient)
    net.commit().write_masks()
    assert (int(net.pruned), int(net.regrown)) == (0, int(gone.sum()))
    kit.begin(net)
    net.prune_to(1 - (before - 15) / net.numel, magnitude)
    net.drop(torch.tensor([5, 0, 0]), magnitude)
    net.commit().write_masks()
    assert int(net.pruned) == 20 == before - int(net.active.sum())

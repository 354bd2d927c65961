"""RigL and RigL-ITOP against plain simulations: layers keep their counts, connections move by gradient."""

from __future__ import annotations

import math

import pytest

from granet import Clock, RigL, RigLITOP
from granet.distributions import counts, distribution


@pytest.mark.parametrize("coarse", [False, True], ids=["distinct", "ties"])
def test_every_update_of_rigl_is_the_plain_one(trial, plain, equal, coarse: bool) -> None:
    run = trial(RigL(sparsity=0.8, every=10), 160, coarse=coarse)
    active, seen = run.active, []
    for clock, weights, gradients, before, after in run:
        ratio = 0.3 / 2 * (1 + math.cos(math.pi * clock.step / 120))  # 0 at 75 % of training
        assert equal(after, plain.regenerate(weights, gradients, before, ratio, math.floor))
        assert run.active == active
        seen.append(clock.step)
    assert seen == list(range(10, 120, 10))


@pytest.mark.parametrize("coarse", [False, True], ids=["distinct", "ties"])
def test_every_update_of_itop_is_the_plain_one(trial, plain, equal, coarse: bool) -> None:
    run = trial(RigLITOP(sparsity=0.8, every=10), 125, coarse=coarse)
    active, seen = run.active, []
    for clock, weights, gradients, before, after in run:
        ratio = 0.005 + 0.495 / 2 * (1 + math.cos(math.pi * clock.step / 125))
        assert equal(after, plain.regenerate(weights, gradients, before, ratio, math.ceil))
        assert run.active == active
        seen.append(clock.step)
    assert seen == list(range(10, 125, 10))


def test_all_weights_may_move(trial, plain, equal) -> None:
    """At a share of 1 each layer has the weights with the largest gradients, wherever they are."""
    for _, _, gradients, before, after in trial(RigLITOP(sparsity=0.8, every=10, regrow=1, regrow_end=1.0), 60):
        pairs = zip(gradients, before, strict=True)
        assert equal(after, [plain.prune_layer(g, mask | ~mask, mask.sum()) for g, mask in pairs])


def test_rounding_down_moves_nothing_where_the_share_is_below_one(trial, equal) -> None:
    """A layer of three active weights at 0.3: RigL moves none, ITOP one."""
    for _, _, _, before, after in trial(RigL(sparsity=0.5, distribution="uniform", every=10), 160, [(2, 3)]):
        assert equal(before, after)
    run = trial(RigLITOP(sparsity=0.5, distribution="uniform", every=10), 160, [(2, 3)])
    assert not all(equal(before, after) for _, _, _, before, after in run)


@pytest.mark.parametrize("cls", [RigL, RigLITOP])
@pytest.mark.parametrize("name", ["erk", "er", "uniform"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9, 0.98])
def test_the_start_has_exact_shares_that_stay(trial, cls, name: str, sparsity: float) -> None:
    run = trial(cls(sparsity=sparsity, distribution=name, every=20), 100)
    total = run.net.numel - round(run.net.numel * sparsity)
    expected = counts(run.net.shapes, distribution(name)(run.net.shapes, total / run.net.numel), total, 1)
    assert run.active == expected
    for _ in run:
        assert run.active == expected
    assert min(expected) >= 1


def test_a_layer_of_one_weight_is_never_emptied(trial) -> None:
    run = trial(RigLITOP(sparsity=1 - 4 / 2416, every=10), 100)
    assert run.active == [1, 1, 1, 1]
    for _ in run:
        assert run.active == [1, 1, 1, 1]


def test_the_defaults_are_the_published_ones() -> None:
    rigl, itop = RigL(sparsity=0.9), RigLITOP(sparsity=0.9)
    assert (rigl.distribution, rigl.every, rigl.end, rigl.regrow) == ("erk", 100, "75%", 0.3)
    assert (itop.distribution, itop.every, itop.end, itop.regrow, itop.regrow_end) == ("erk", 1000, "100%", 0.5, 0.005)
    assert rigl.updates(Clock(0, 32_000)) == range(100, 24_000, 100)
    assert itop.updates(Clock(0, 56_320)) == range(1000, 56_320, 1000)


def test_the_optimizer_step_on_update_steps_is_an_option_of_rigl() -> None:
    assert RigL(sparsity=0.9).step_on_update
    assert not RigL(sparsity=0.9, step_on_update=False).step_on_update
    assert RigL(sparsity=0.9) != RigL(sparsity=0.9, step_on_update=False)
    with pytest.raises(TypeError):
        RigLITOP(sparsity=0.9, step_on_update=False)  # type: ignore[call-arg]


def test_no_update_after_the_very_last_step() -> None:
    assert RigLITOP(sparsity=0.9, every=10).updates(Clock(0, 100))[-1] == 90
    assert RigL(sparsity=0.9, every=10, end=50).updates(Clock(0, 100))[-1] == 40

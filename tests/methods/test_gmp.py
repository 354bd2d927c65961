"""GMP as the GraNet paper runs it: the same global prune and schedule, and what is pruned never returns."""

from __future__ import annotations

import pytest

from granet import GMP, Clock, GraNet

FAST = {"every": 10, "prune_end": 80}


def keep_at(run, method: GMP, clock: Clock) -> int:
    return run.net.numel - round(run.net.numel * method.target(clock))


@pytest.mark.parametrize("coarse", [False, True], ids=["distinct", "ties"])
def test_every_update_is_the_plain_global_prune(trial, plain, equal, coarse: bool) -> None:
    method = GMP(sparsity=0.9, **FAST)
    run = trial(method, 125, coarse=coarse)
    assert run.zeros == 0
    for clock, weights, _, before, after in run:
        assert equal(after, plain.prune_globally(weights, before, keep_at(run, method, clock)))
        assert not any((a & ~b).any() for a, b in zip(after, before, strict=True))  # none returns
    assert run.zeros == round(0.9 * run.net.numel)


def test_the_targets_are_those_of_granet_from_a_dense_start() -> None:
    gmp, granet = GMP(sparsity=0.9, **FAST), GraNet(sparsity=0.9, **FAST)
    for step in range(126):
        assert gmp.target(Clock(step, 125)) == granet.target(Clock(step, 125))


def test_nothing_is_asked_for_before_the_window() -> None:
    method = GMP(sparsity=0.9, start=40, **FAST)
    assert [method.target(Clock(step, 125)) for step in (0, 30, 40)] == [0, 0, 0]
    assert method.target(Clock(50, 125)) > 0


def test_nothing_moves_after_the_window(trial, equal) -> None:
    for clock, _, _, before, after in trial(GMP(sparsity=0.9, **FAST), 125):
        assert equal(before, after) == (clock.step > 80)


def test_no_layer_is_emptied(trial) -> None:
    run = trial(GMP(sparsity=0.95, **FAST), 125, scales=[1, 1e-3, 1, 1e-6])
    for _ in run:
        assert min(run.active) >= 1
    assert run.active[3] == 1
    assert run.zeros == round(0.95 * run.net.numel)


def test_the_uniform_scope_holds_the_last_layer_at_a_fifth(trial, plain, equal) -> None:
    method = GMP(sparsity=0.95, distribution="uniform", **FAST)
    run = trial(method, 125)
    for clock, weights, _, before, after in run:
        assert sum(run.active) == keep_at(run, method, clock)
        assert run.active[-1] == pytest.approx(max(80, 400 * (1 - method.target(clock))), abs=1)
        assert run.active[-1] >= 80
        expected = [plain.prune_layer(w, b, n) for w, b, n in zip(weights, before, run.active, strict=True)]
        assert equal(after, expected)
    rest = (round(2416 * 0.05) - 80) / 2016
    assert run.active[:3] == [pytest.approx(size * rest, abs=1) for size in (432, 384, 1200)]


def test_the_last_layer_may_be_pruned_like_the_others(trial) -> None:
    run = trial(GMP(sparsity=0.9, distribution="uniform", last_density=0.0, **FAST), 125)
    for _ in run:
        pass
    assert run.active == [pytest.approx(size / 10, abs=1) for size in (432, 384, 1200, 400)]


def test_it_needs_no_gradient() -> None:
    assert not GMP.needs_gradient
    assert GraNet.needs_gradient

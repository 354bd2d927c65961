"""Schedules against the numbers of the paper's settings, through the methods that use them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from granet import GMP, SNFS, Clock, GraNet, RigL, RigLITOP
from granet.schedules import cosine, cubic, geometric

GOLDEN = [  # method, total steps, steps per epoch, updates in the window n, {step: (s_t, r_t)}
    pytest.param(
        GraNet(sparsity=0.9, prune_end="110ep", every=1000), 56_320, 352, 38,
        {1000: (0.06920, 0.4996), 2000: (0.13476, 0.4985), 19_000: (0.78750, 0.3735), 38_000: (0.9, 0.1234)},
        id="CIFAR-10 from dense",
    ),
    pytest.param(
        GraNet(sparsity=0.9, initial_sparsity=0.5, prune_end="80ep", every=1000), 56_320, 352, 28,
        {1000: (0.54134, 0.4996), 14_000: (0.85000, 0.4283), 28_000: (0.9, 0.2547)},
        id="CIFAR-10 from 0.5",
    ),
    pytest.param(
        GraNet(sparsity=0.9, prune_end="110ep", every=1000), 62_560, 391, 43,
        {1000: (0.06134, 0.4997), 21_000: (0.77947, 0.3747), 43_000: (0.9, 0.1151)},
        id="CIFAR-100 from dense",
    ),
    pytest.param(
        GraNet(sparsity=0.9, initial_sparsity=0.5, prune_end="80ep", every=1000), 62_560, 391, 31,
        {1000: (0.53747, 0.4997), 15_000: (0.84500, 0.4330), 31_000: (0.9, 0.2560)},
        id="CIFAR-100 from 0.5",
    ),
    pytest.param(
        GraNet(sparsity=0.9, initial_sparsity=0.5, prune_end="30ep", every=4000), 1_000_900, 10_009, 75,
        {4000: (0.51579, 0.5000), 148_000: (0.84797, 0.4738), 300_000: (0.9, 0.3981)},
        id="ImageNet from 0.5",
    ),
]  # fmt: skip

Rows = dict[int, tuple[float, float]]


@pytest.mark.parametrize(("method", "total", "epoch", "n", "rows"), GOLDEN)
def test_sparsity_and_regrow_ratio_are_the_published_ones(
    method: GraNet, total: int, epoch: int, n: int, rows: Rows
) -> None:
    for step, (sparsity, ratio) in rows.items():
        clock = Clock(step, total, epoch)
        assert round(method.target(clock), 5) == sparsity
        assert round(method.regrow_ratio(clock), 4) == ratio


@pytest.mark.parametrize(("method", "total", "epoch", "n", "rows"), GOLDEN)
def test_the_window_has_n_updates_and_the_last_reaches_the_end(
    method: GraNet, total: int, epoch: int, n: int, rows: Rows
) -> None:
    updates = method.updates(Clock(0, total, epoch))
    targets = [method.target(Clock(step, total, epoch)) for step in updates]
    assert targets.index(0.9) == n - 1  # exactly 0.9, first at the n-th update
    assert set(targets[n - 1 :]) == {0.9}
    assert updates[0] == method.every  # nothing to prune at step 0
    assert len(updates) == total // updates.step  # regeneration goes on to the end of training


@pytest.mark.parametrize(("method", "total", "epoch", "n", "rows"), GOLDEN)
def test_gmp_has_the_schedule_of_granet(method: GraNet, total: int, epoch: int, n: int, rows: Rows) -> None:
    if method.initial_sparsity == 0:
        gmp = GMP(sparsity=method.sparsity, prune_end=method.prune_end, every=method.every)
        assert gmp.updates(Clock(0, total, epoch)) == method.updates(Clock(0, total, epoch))
        for step in rows:
            assert gmp.target(Clock(step, total, epoch)) == method.target(Clock(step, total, epoch))


@pytest.mark.parametrize("step", [1, 1000, 28_160, 50_000, 56_320])
def test_regrow_ratio_is_a_cosine_over_all_steps_whatever_the_window(step: int) -> None:
    clock = Clock(step, 56_320)
    expected = 0.005 + 0.495 * (1 + math.cos(math.pi * step / 56_320)) / 2
    for end in ("10%", "50%", "100%"):
        for method in (
            GraNet(sparsity=0.9, prune_end=end),
            RigLITOP(sparsity=0.9, end=end),
            SNFS(sparsity=0.9, end=end),
        ):
            assert method.regrow_ratio(clock) == pytest.approx(expected, abs=1e-12)


def test_the_ratio_of_rigl_falls_to_nothing_at_its_end() -> None:
    method, total = RigL(sparsity=0.9), 32_000
    assert method.regrow_ratio(Clock(0, total)) == pytest.approx(0.3)
    assert method.regrow_ratio(Clock(12_000, total)) == pytest.approx(0.15)
    assert method.regrow_ratio(Clock(24_000, total)) == pytest.approx(0, abs=1e-12)


@settings(max_examples=examples(100))
@given(st.floats(0, 0.99), st.floats(0, 0.99), st.lists(st.floats(0, 1), min_size=2, max_size=5))
@pytest.mark.parametrize("schedule", [cubic, cosine])
def test_a_schedule_goes_from_one_end_to_the_other_and_never_back(schedule, first, last, progress) -> None:
    initial, final = sorted((first, last))
    values = [schedule(initial, final, p) for p in [0.0, *sorted(progress), 1.0]]
    assert values[0] == pytest.approx(initial, abs=1e-12)
    assert values[-1] == final
    assert all(earlier <= later + 1e-12 for earlier, later in pairwise(values))


def test_cubic_stays_at_the_end() -> None:
    assert cubic(0.1, 0.7, 1.5) == 0.7


@pytest.mark.parametrize("final", [0.1, 0.7, 0.99])
def test_geometric_ends_at_exactly_the_final_sparsity_and_stays_there(final: float) -> None:
    assert geometric(final, 1) == geometric(final, 1.5) == final

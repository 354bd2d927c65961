"""GraNet against a plain simulation of its paper: prune globally to s_t, then drop and regrow r_t of each layer."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from granet import Clock, GraNet, sparsify
from granet.distributions import counts, distribution
from refusals import refused

FAST = {"every": 10, "prune_end": 80}


def published_target(method: GraNet, step: int, start: int = 0, end: int = 80, every: int = 10) -> float:
    """Eq. 1 with updates counted in whole periods."""
    done, n = step // every - start // every, end // every - start // every
    initial, final = method.initial_sparsity, method.sparsity
    return final if done >= n else initial + (final - initial) * (1 - (1 - done / n) ** 3)


@pytest.mark.parametrize("initial", [0.0, 0.5])
@pytest.mark.parametrize("coarse", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_update_is_the_plain_one(trial, plain, equal, initial: float, coarse: bool, seed: int) -> None:
    method = GraNet(sparsity=0.9, initial_sparsity=initial, **FAST)
    run = trial(method, 125, seed=seed, coarse=coarse)
    for clock, weights, gradients, before, after in run:
        keep = run.net.numel - round(run.net.numel * published_target(method, clock.step))
        ratio = 0.005 + 0.495 * (1 + math.cos(math.pi * clock.step / 125)) / 2
        pruned = plain.prune_globally(weights, before, keep)
        assert equal(after, plain.regenerate(weights, gradients, pruned, ratio))
        assert [m.sum() for m in after] == [m.sum() for m in pruned]  # regeneration moves, and changes no count
        assert sum(run.active) == keep
    assert run.updates == range(10, 125, 10)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("initial", [0.0, 0.5])
def test_what_is_pruned_starts_from_zero_if_it_regrows_and_what_is_dropped_goes_on(
    plain, layout: torch.memory_format, initial: float
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(32, 20)).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)  # weights stay, momentum grows
    sparsifier = sparsify(
        model, optimizer, GraNet(sparsity=0.9, initial_sparsity=initial, every=2, prune_end=8), total_steps=20
    )
    weights = [layer.weight for layer in sparsifier.layers.values()]
    fresh = kept = 0
    for step in range(1, 9):
        for weight in weights:
            weight.data.copy_(torch.where(weight == 0, 0, torch.randn_like(weight)))
            weight.grad = torch.randn_like(weight)
        values = [weight.detach().flatten().numpy().copy() for weight in weights]
        before = [mask.flatten().numpy().copy() for mask in sparsifier.masks.values()]
        optimizer.step()
        if step % 2:
            continue
        momenta = [optimizer.state[weight]["momentum_buffer"].flatten().numpy() for weight in weights]
        left = plain.prune_globally(values, before, sum(layer.active for layer in sparsifier.layers.values()))
        for i, mask in enumerate(mask.flatten().numpy() for mask in sparsifier.masks.values()):
            stays = mask & left[i]
            now = weights[i].detach().flatten().numpy()
            assert (now == np.where(stays, values[i], 0)).all()
            assert ((momenta[i] != 0) == stays).all()
            fresh += (mask & before[i] & ~left[i]).sum()
            kept += stays.sum()
    assert fresh > 10 and kept > 100


def test_the_schedule_is_followed_exactly_and_its_end_is_reached(trial) -> None:
    run = trial(GraNet(sparsity=0.9, **FAST), 125)
    zeros = [run.zeros for _ in run]
    expected = [published_target(run.method, step) for step in run.updates]
    assert zeros == [round(run.net.numel * target) for target in expected]
    assert zeros[7:] == [round(0.9 * run.net.numel)] * 5  # from step 80 on
    assert zeros[6] < zeros[7]


def test_after_the_window_layers_keep_their_counts_while_weights_move(trial) -> None:
    seen = []
    for clock, _, _, before, after in (run := trial(GraNet(sparsity=0.8, **FAST), 125)):
        if clock.step > 80:
            seen.append(run.active)
            assert any((one != other).any() for one, other in zip(before, after, strict=True))
    assert len(seen) == 4
    assert all(active == seen[0] for active in seen)


def test_just_dropped_weights_are_candidates(trial) -> None:
    """From a dense start nearly all that is dropped comes straight back: about half of a pool of about half."""
    run = trial(GraNet(sparsity=0.9, every=10, prune_end=400), 800)
    _, _, _, before, after = next(iter(run))
    lost = sum((b & ~a).sum() for b, a in zip(before, after, strict=True))
    assert lost == run.zeros  # nothing but what the schedule prunes is gone


@pytest.mark.parametrize("name", [None, "erk", "er", "uniform"])
def test_a_sparse_start_has_the_shares_of_its_distribution(trial, name: str | None) -> None:
    run = trial(GraNet(sparsity=0.9, initial_sparsity=0.5, initial_distribution=name, **FAST), 125)
    total = run.net.numel - round(run.net.numel * 0.5)
    densities = distribution(name or "erk")(run.net.shapes, total / run.net.numel)
    assert run.active == counts(run.net.shapes, densities, total, 1)


def test_a_dense_start_is_dense(trial) -> None:
    assert trial(GraNet(sparsity=0.9, **FAST), 125).zeros == 0


@pytest.mark.parametrize("floor", [1, 3])
def test_no_layer_is_emptied_however_small_its_weights(trial, floor: int) -> None:
    run = trial(GraNet(sparsity=0.95, **FAST), 125, floor=floor, scales=[1, 1e-3, 1, 1e-6])
    for _ in run:
        assert min(run.active) >= floor
    assert run.active[3] == floor
    assert run.zeros == round(0.95 * run.net.numel)


def test_a_floor_of_zero_lets_a_layer_go(trial) -> None:
    run = trial(GraNet(sparsity=0.95, **FAST), 125, floor=0, scales=[1, 1, 1, 1e-6])
    for _ in run:
        pass
    assert run.active[3] == 0
    assert run.zeros == round(0.95 * run.net.numel)


# Windows.


@pytest.mark.parametrize(
    ("start", "end", "every", "total", "steps"),
    [
        (0, 80, 10, 125, range(10, 125, 10)),
        (0, 85, 10, 120, range(10, 120, 10)),  # nothing grows after the very last step
        (0, 120, 10, 120, range(10, 121, 10)),  # but what must be pruned there is
        (20, 80, 10, 125, range(20, 125, 10)),
        (25, 80, 10, 125, range(30, 125, 10)),
        (0, "50%", "1ep", 125, range(25, 125, 25)),
        ("1ep", "100%", 10, 125, range(30, 125, 10)),
    ],
)
def test_updates_come_at_multiples_from_start_to_the_end_of_training(start, end, every, total, steps) -> None:
    method = GraNet(sparsity=0.9, start=start, prune_end=end, every=every)
    assert method.updates(Clock(0, total, 25)) == steps


@pytest.mark.parametrize(("start", "end"), [(0, 80), (20, 80), (25, 85), (0, 120), (30, 47)])
def test_a_window_begins_at_the_initial_sparsity_and_ends_at_the_final_one(trial, start: int, end: int) -> None:
    method = GraNet(sparsity=0.9, initial_sparsity=0.5, start=start, prune_end=end, every=10)
    run = trial(method, 120)
    numel = run.net.numel
    for clock, *_ in run:
        assert run.zeros == round(numel * published_target(method, clock.step, start, end))
        assert (method.target(clock) == 0.9) == (clock.step >= end // 10 * 10)
    assert method.target(Clock(start, 120)) == 0.5


def test_the_same_sparsity_at_both_ends_only_regenerates(trial) -> None:
    run = trial(GraNet(sparsity=0.7, initial_sparsity=0.7, **FAST), 125)
    active = run.active
    assert all(run.active == active for _ in run)


# The uniform distribution.


@pytest.mark.parametrize("initial", [0.0, 0.5])
def test_the_uniform_scope_prunes_and_regenerates_layer_by_layer(trial, plain, equal, initial: float) -> None:
    method = GraNet(sparsity=0.9, initial_sparsity=initial, distribution="uniform", **FAST)
    run = trial(method, 125)
    for clock, weights, gradients, before, after in run:
        target = published_target(method, clock.step)
        assert run.zeros == round(run.net.numel * target)
        last = max(1 - target, 0.2)
        assert run.active[-1] == pytest.approx(last * 400, abs=1)
        rest = (sum(run.active) - run.active[-1]) / (run.net.numel - 400)
        for active, mask in zip(run.active[:-1], after[:-1], strict=True):
            assert active == pytest.approx(rest * len(mask), abs=1.5)
        pruned = [
            plain.prune_layer(w, b, count) for w, b, count in zip(weights, before, run.active, strict=True)
        ]  # fmt: skip
        assert equal(after, plain.regenerate(weights, gradients, pruned, method.regrow_ratio(clock)))


def test_the_uniform_scope_can_spare_the_first_layer(trial) -> None:
    run = trial(GraNet(sparsity=0.6, initial_sparsity=0.3, distribution="uniform", dense_first=True, **FAST), 125)
    assert run.active[0] == 432
    for _ in run:
        assert run.active[0] == 432
    assert run.zeros == round(0.6 * run.net.numel)


def test_a_budget_that_the_uniform_scope_cannot_share_is_refused_at_once(trial) -> None:
    with refused("last_density=0.2, dense_first", True):
        trial(GraNet(sparsity=0.9, distribution="uniform", dense_first=True, **FAST), 125)


# Bad values.


def test_nothing_is_regrown_after_the_last_step() -> None:
    """It would never be trained; but pruning that ends there must still reach its sparsity."""
    model = torch.nn.Linear(20, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = GraNet(sparsity=0.8, every=2, prune_end=10)
    sparsifier = sparsify(model, optimizer, method, total_steps=10)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 20)).square().mean().backward()
        optimizer.step()
    assert [record.step for record in sparsifier.history] == [2, 4, 6, 8, 10]
    assert [record.regrown > 0 for record in sparsifier.history] == [True, True, True, True, False]
    assert sparsifier.sparsity == 0.8


@given(total=st.integers(2, 5000), start=st.integers(0, 60), share=st.integers(0, 100))
def test_the_period_proposed_for_a_short_training_does(total: int, start: int, share: int) -> None:
    method = GraNet(sparsity=0.9, every=5000, start=start, prune_end=f"{share}%")
    try:
        method.updates(Clock(0, total))
    except ValueError as error:
        proposed = re.search(r"; every=(\d+) would do$", str(error))
        if proposed is None:  # no period would
            with pytest.raises(ValueError, match=r"^(every=1|prune_end='[0-9]+%'): must "):
                replace(method, every=1).updates(Clock(0, total))
            return
        steps = replace(method, every=int(proposed[1])).updates(Clock(0, total))
        end = Clock(0, total).steps(method.prune_end)
        assert sum(start < step <= end for step in steps) >= min(15, end - start)


def test_a_short_training_with_the_papers_period_is_told_another() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with refused("every", 1000, "start=0", "total_steps=600)", "every=10"):
        sparsify(model, optimizer, GraNet(sparsity=0.9), total_steps=600)
    sparsify(model, optimizer, GraNet(sparsity=0.9, every=10), total_steps=600)

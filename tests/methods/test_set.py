"""SET: the weights nearest zero go, and exactly as many grow at random."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from granet import SET, Clock


def test_the_nearest_to_zero_go_and_as_many_come_back(trial, plain) -> None:
    run = trial(SET(sparsity=0.8, every=10), 100)
    active = run.active
    for _, weights, _, before, after in run:
        assert run.active == active
        for weight, b, a in zip(weights, before, after, strict=True):
            moved = math.ceil(0.3 * b.sum())
            kept = plain.prune_layer(weight, b, b.sum() - moved)
            assert (a & kept).sum() == kept.sum()  # the larger ones stay
            assert (a & ~kept).sum() == moved


def test_the_sign_of_a_weight_does_not_matter(trial) -> None:
    """The largest negative weights are those nearest zero, not the most negative ones."""
    run = trial(SET(sparsity=0.5, every=10, distribution="uniform"), 100)
    for _, weights, _, before, after in run:
        for weight, b, a in zip(weights, before, after, strict=True):
            lost = np.abs(weight[b & ~a])
            assert lost.max() <= np.quantile(np.abs(weight[b]), 0.31)


@pytest.mark.slow
def test_growth_is_uniform_over_what_is_not_kept(trial, plain) -> None:
    """Each candidate, the just dropped included, is grown as often as any other."""
    candidates = np.zeros(1200)
    grown = np.zeros(1200)
    dropped = returned = 0
    for seed in range(12):
        for _, weights, _, before, after in trial(SET(sparsity=0.8, every=10), 300, seed=seed):
            kept = plain.prune_layer(weights[2], before[2], before[2].sum() - math.ceil(0.3 * before[2].sum()))
            candidates += ~kept
            grown += after[2] & ~kept
            dropped += (before[2] & ~kept).sum()
            returned += (before[2] & ~kept & after[2]).sum()
    rate = grown.sum() / candidates.sum()
    deviation = (grown - candidates * rate) / np.sqrt(candidates * rate * (1 - rate))
    assert np.abs(deviation).max() < 5
    assert deviation.std() == pytest.approx(1, abs=0.1)
    assert abs(returned - dropped * rate) < 5 * np.sqrt(dropped * rate * (1 - rate))


def test_growth_looks_at_no_gradient(trial) -> None:
    assert not SET.needs_gradient
    run = trial(SET(sparsity=0.8, every=10), 100)
    assert {layer.gradient for layer in run.net.layers} == {None}
    run.net.open(10, run.net.layers, torch.tensor(True))
    run.method.update(run.net, Clock(10, 100))
    run.net.commit().write_masks()
    assert int(run.net.regrown) == sum(math.ceil(0.3 * active) for active in run.active)


def test_it_is_repeatable_by_seed(trial, equal) -> None:
    runs = [trial(SET(sparsity=0.8, every=10), 100, seed=seed) for seed in (3, 3, 4)]
    for run in runs:
        for _ in run:
            pass
    assert equal(runs[0].masks, runs[1].masks)
    assert not equal(runs[0].masks, runs[2].masks)


def test_once_an_epoch_to_the_end_by_default() -> None:
    method = SET(sparsity=0.9)
    assert (method.distribution, method.every, method.regrow) == ("er", "1ep", 0.3)
    assert method.updates(Clock(0, 1000, 100)) == range(100, 1000, 100)

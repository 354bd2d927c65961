"""DSR: all weights below one threshold go, as many grow at random, most where most survived."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from granet import DSR, Clock

SHAPES = [(30, 10), (60, 10), (10, 10)]


def largest_remainder(total: int, survivors: np.ndarray) -> list[int]:
    exact = total * survivors / survivors.sum()
    result = np.floor(exact).astype(int)
    for layer in np.argsort(-(exact - result), kind="stable")[: total - result.sum()]:
        result[layer] += 1
    return result.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_every_update_is_the_plain_one(trial, plain, seed: int) -> None:
    """Weights of N(0, 1), N(0, 2) and N(0, 0.5); 100 are active and 20 should go: H = 0.3 is about right."""
    method = DSR(sparsity=0.9, every=10, regrow=0.2, threshold=0.02)
    run = trial(method, 300, SHAPES, scales=[1.0, 2.0, 0.5], seed=seed)
    threshold, moved = 0.02, []
    for _, weights, _, before, after in run:
        survivors = [
            plain.prune_layer(weight, mask, max(1, (mask & (np.abs(weight) >= threshold)).sum()))  # none is emptied
            for weight, mask in zip(weights, before, strict=True)
        ]
        gone = sum(b.sum() - s.sum() for b, s in zip(before, survivors, strict=True))
        grown = [a & ~s for a, s in zip(after, survivors, strict=True)]
        assert all((a & s).sum() == s.sum() for a, s in zip(after, survivors, strict=True))
        assert [g.sum() for g in grown] == largest_remainder(gone, np.array([s.sum() for s in survivors]))
        assert not any((g & b).any() for g, b in zip(grown, before, strict=True))  # new places
        assert sum(run.active) == 100
        assert int(run.net.regrown) == gone
        threshold *= 2 if gone < 18 else 0.5 if gone > 22 else 1
        assert float(run.net.memory["threshold"]) == threshold
        moved.append(int(gone))
    assert 12 <= np.mean(moved[5:]) <= 28  # the threshold has found its way
    assert len({tuple(run.active), (30, 60, 10)}) == 2  # and layers have not kept their shares


def test_a_threshold_above_everything_leaves_each_layer_its_floor(trial) -> None:
    run = trial(DSR(sparsity=0.9, every=10, threshold=1e9), 100, SHAPES, floor=2)
    next(iter(run))
    assert int(run.net.regrown) == 100 - 3 * 2
    assert sum(run.active) == 100
    assert float(run.net.memory["threshold"]) == 5e8


def test_layers_that_cannot_move_have_their_share_already(trial) -> None:
    method = DSR(sparsity=0.9, every=10, threshold=1e9)
    net = trial(method, 100, SHAPES).net
    net.open(10, net.layers[:2], torch.tensor(True))  # the third had no gradient
    method.update(net, Clock(10, 100))
    net.commit().write_masks()
    assert [int(net.active[:2].sum()), int(net.active[2])] == [90, 10]
    assert int(net.regrown) == 90 - 2


def test_a_dense_net_stays_dense(trial) -> None:
    """Nowhere else to grow: the weights that went come back."""
    run = trial(DSR(sparsity=0.0, every=10, threshold=0.5), 100, SHAPES)
    for _ in run:
        assert run.active == [300, 600, 100]


def test_what_comes_back_for_want_of_other_places_is_random_too(trial) -> None:
    run = trial(DSR(sparsity=0.1, every=10, threshold=1e9), 100, [(20, 10)])
    _, _, _, before, after = next(iter(run))
    gone = before[0] & ~after[0]
    assert gone.sum() == 20  # the places that were off are on now
    assert gone[:100].any() and gone[100:].any()


def test_a_layer_that_fills_up_passes_the_rest_on(trial) -> None:
    """Nearly dense: 380 of 400 active, most of what falls in the second layer must come back there."""
    run = trial(DSR(sparsity=0.05, every=10, threshold=1.0, regrow=0.5), 400, [(20, 10), (20, 10)], scales=[9.0, 0.1])
    for _ in run:
        assert sum(run.active) == 380
        assert max(run.active) <= 200


@pytest.mark.slow
def test_growth_is_uniform_over_the_places_that_were_off(trial) -> None:
    candidates, grown = np.zeros(600), np.zeros(600)
    for seed in range(15):
        for _, _, _, before, after in trial(DSR(sparsity=0.8, every=10, threshold=0.5), 200, SHAPES, seed=seed):
            off = ~before[1]
            candidates += off
            grown += after[1] & off
            rate = grown.sum() / candidates.sum()
    deviation = (grown - candidates * rate) / np.sqrt(candidates * rate * (1 - rate))
    assert np.abs(deviation).max() < 5


def test_an_update_not_accepted_changes_neither_masks_nor_threshold(trial, equal) -> None:
    run = trial(DSR(sparsity=0.9, every=10), 100, SHAPES)
    run._move()
    before = run.masks
    run.net.open(10, run.net.layers, torch.tensor(False))
    run.method.update(run.net, Clock(10, 100))
    run.net.commit().write_masks()
    assert equal(before, run.masks)
    assert float(run.net.memory["threshold"]) == 1e-3


@pytest.mark.parametrize(("more", "factor"), [(-1, 2.0), (0, 1.0), (1, 0.5)])
@pytest.mark.parametrize("half", [2**25 + 1, 2**40 + 1])
def test_the_threshold_counts_the_weights_of_a_large_net_one_by_one(half: int, more: int, factor: float) -> None:
    """Half of the weights should go, exactly; a net that counts but has none shows what the update makes of that."""
    net = SimpleNamespace(
        memory={"threshold": torch.ones((), dtype=torch.float64)},
        counts=torch.tensor([half, half]),
        accept=torch.tensor(True),
        below=lambda threshold: torch.tensor([half, more]),
        drop=lambda counts, score: counts,
        grow=lambda counts, score: None,
        share_out=lambda total, shares: None,
        lacking=lambda sparsity: None,
    )
    DSR(sparsity=0.9, regrow=0.5, tolerance=0.0).update(net, Clock(10, 100))  # type: ignore[arg-type]
    assert float(net.memory["threshold"]) == factor

"""A static mask: random, exact, and never touched again."""

from __future__ import annotations

import pytest

from granet import Clock, Static
from granet.distributions import counts, distribution


@pytest.mark.parametrize("name", ["erk", "er", "uniform"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9, 0.99])
def test_the_mask_has_the_exact_shares(trial, name: str, sparsity: float) -> None:
    run = trial(Static(sparsity=sparsity, distribution=name), 100)
    total = run.net.numel - round(run.net.numel * sparsity)
    densities = distribution(name)(run.net.shapes, total / run.net.numel)
    assert run.active == counts(run.net.shapes, densities, total, 1)
    assert sum(run.active) == total


def test_there_is_never_an_update() -> None:
    assert len(Static(sparsity=0.9).updates(Clock(0))) == 0
    assert Static(sparsity=0.9).target(Clock(7)) == 0.9


def test_another_seed_gives_another_mask(trial, equal) -> None:
    first, again, other = (trial(Static(sparsity=0.9), 100, seed=seed).masks for seed in (0, 0, 1))
    assert equal(first, again)
    assert not equal(first, other)

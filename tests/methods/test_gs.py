"""GS: rounds of pruning by one global threshold, with training between them."""

from __future__ import annotations

from granet import GS, Clock


def test_every_round_is_the_plain_global_prune_to_a_geometric_density(trial, plain, equal) -> None:
    method = GS(sparsity=0.9, start=20, prune_end=80, rounds=4)
    run = trial(method, 100)
    seen = []
    for clock, weights, _, before, after in run:
        done = min(4, (clock.step - 20) // 15)
        keep = 2416 - round(2416 * (1 - 0.1 ** (done / 4)))
        assert equal(after, plain.prune_globally(weights, before, keep))
        seen.append(clock.step)
    assert seen == [35, 50, 65, 80, 95]
    assert run.zeros == round(0.9 * 2416)


def test_targets_by_hand() -> None:
    method = GS(sparsity=0.75, start=10, prune_end=30, rounds=2)
    assert [method.target(Clock(step, 40)) for step in (0, 10, 19, 20, 29, 30, 40)] == [0, 0, 0, 0.5, 0.5, 0.75, 0.75]
    assert GS(sparsity=0.3).target(Clock(40, 40)) == 0.3 != 1 - (1 - 0.3)  # not rounded on the way


def test_rounds_may_follow_each_other_and_end_with_the_training() -> None:
    assert GS(sparsity=0.9, start=6, prune_end=10, rounds=4).updates(Clock(0, 10)) == range(7, 11)
    assert GS(sparsity=0.9, start=0, prune_end="100%", rounds=2).updates(Clock(0, 100)) == range(50, 101, 50)

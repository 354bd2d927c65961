"""Series of trainings: the sparsity of each round, and what each one begins with."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import Optimizer

import granet
from granet.retraining import Round, retrain, round_sparsities
from refusals import refused


@given(st.floats(0.01, 0.999), st.floats(0.05, 0.9))
def test_each_round_prunes_its_share_of_what_is_left(sparsity: float, share: float) -> None:
    rounds = [0.0, *round_sparsities(sparsity, share)]
    for before, after in pairwise(rounds[:-1]):
        assert (after - before) / (1 - before) == pytest.approx(share)
    assert rounds[-1] == sparsity
    assert 0 < rounds[-1] - rounds[-2] <= share * (1 - rounds[-2]) + 1e-9


def test_no_sparsity_needs_no_round() -> None:
    assert round_sparsities(0.0) == []
    assert round_sparsities(0.2) == [0.2]


@pytest.mark.parametrize(
    ("given", "message"),
    [((1.0,), ("sparsity", 1.0)), ((0.9, 0.0), ("share", 0.0, "(0, 1)")), ((0.9, 1), ("share", 1))],
)
def test_shares_out_of_range(given: Any, message: tuple) -> None:
    with refused(*message):
        round_sparsities(*given)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 3))


@pytest.mark.parametrize("method", [granet.LTH, granet.LRR])
def test_masks_are_nested_and_every_round_begins_where_its_method_says(method: type[granet.Method]) -> None:
    begun: list[dict[str, torch.Tensor]] = []
    optimizers: list[Optimizer] = []

    def train(model: nn.Module, optimizer: Optimizer, sparsifier: granet.Sparsifier | None) -> None:
        begun.append({name: value.clone() for name, value in model.state_dict().items()})
        assert not optimizer.state
        assert (sparsifier is None) == (len(begun) == 1)
        optimizers.append(optimizer)
        generator = torch.Generator().manual_seed(len(begun))
        for _ in range(8):
            x = torch.randn(16, 6, generator=generator)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            optimizer.step()

    model, initial = net(), net().state_dict()
    series: list[Round] = list(
        retrain(
            model,
            lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            train,
            lambda sparsity: method(sparsity=sparsity),
            round_sparsities(0.8, 0.5),
        )
    )
    total = 6 * 20 + 20 * 3
    assert [done.sparsity * total for done in series] == pytest.approx([0, 90, 135, 144])
    masks = [torch.cat([done.state[f"{i}.weight"].flatten() != 0 for i in (0, 3)]) for done in series]
    assert [int(mask.sum()) for mask in masks] == [180, 90, 45, 36]
    assert all(bool((wider | ~narrower).all()) for wider, narrower in pairwise(masks))
    for done, start in zip(series, begun[1:], strict=False):
        source = initial if method is granet.LTH else done.state
        for name, value in start.items():
            kept = value != 0 if name in ("0.weight", "3.weight") else torch.ones_like(value, dtype=torch.bool)
            assert torch.equal(value, source[name] * kept)
    assert not any(optimizer._optimizer_step_pre_hooks for optimizer in optimizers)


def test_what_else_is_asked_for_reaches_the_sparsifier_of_every_round() -> None:
    done = list(
        retrain(
            net(),
            lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            lambda model, optimizer, sparsifier: None,
            lambda sparsity: granet.LTH(sparsity=sparsity),
            [0.5, 0.753],  # of 120 weights, so that the last is rounded
            exclude=("3.weight",),
        )
    )
    assert [(one.number, one.sparsity) for one in done] == [(0, 0.0), (1, 0.5), (2, 0.75)]
    zeros = [[int((one.state[f"{i}.weight"] == 0).sum()) for i in (0, 3)] for one in done]
    assert zeros == [[0, 0], [60, 0], [90, 0]]

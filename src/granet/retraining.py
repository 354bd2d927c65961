"""Iterative retraining: train, prune a little, train again, until the net has the requested sparsity.

Lottery tickets and learning-rate rewinding were proposed this way (Frankle & Carbin 2019; Renda et al. 2020). A round
is one training with a mask from the round before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from granet.checks import check_rate, check_share
from granet.methods import Method
from granet.sparsifier import Sparsifier, sparsify

Train = Callable[[nn.Module, Optimizer, Sparsifier | None], None]
"""One whole training of the model; there is no sparsifier in the first, dense one."""


def round_sparsities(sparsity: float, share: float = 0.2) -> list[float]:
    """The sparsity of each round, when each prunes ``share`` of what is left and the last one ends at ``sparsity``.

    After k rounds 1 - (1 - share)^k of the weights are gone.

    >>> [round(s, 3) for s in round_sparsities(0.6)]
    [0.2, 0.36, 0.488, 0.59, 0.6]
    """
    check_share("sparsity", sparsity)
    check_rate("share", share)
    rounds: list[float] = []
    while (gone := 1 - (1 - share) ** (len(rounds) + 1)) < sparsity - 1e-9:  # no extra round because of rounding
        rounds.append(gone)
    return [*rounds, sparsity] if sparsity > 0 else []


@dataclass(frozen=True)
class Round:
    """One finished training of a series."""

    number: int
    sparsity: float
    state: dict[str, Tensor]
    """The model's state at its end."""


def retrain(
    model: nn.Module,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
    train: Train,
    method: Callable[[float], Method],
    sparsities: Sequence[float],
    **how: Any,
) -> Iterator[Round]:
    """Train ``model`` dense, then once for each sparsity, each time with a mask from the round before.

    Every round begins with the values that the model has at the call and a fresh optimizer; a method such as
    `granet.LRR` then replaces them by the trained ones. Pruned weights stay pruned, because zeros rank last. For
    example

        for done in retrain(model, make_sgd, train, lambda s: granet.LTH(sparsity=s), round_sparsities(0.9)): ...

    Args:
        optimizer: makes an optimizer for the model's parameters.
        train: trains the model to the end, in place.
        method: the retraining method for a sparsity.
        how: passed on to `granet.sparsify`: ``total_steps``, ``batches``, ``exclude`` and so on.
    """
    initial = _copy(model.state_dict())
    train(model, optimizer(model.parameters()), None)
    state = _copy(model.state_dict())
    yield Round(0, 0.0, state)
    for number, sparsity in enumerate(sparsities, start=1):
        model.load_state_dict(initial)
        fresh = optimizer(model.parameters())
        sparsifier = sparsify(model, fresh, method(sparsity), trained=state, **how)
        train(model, fresh, sparsifier)
        sparsifier.remove()
        state = _copy(model.state_dict())
        yield Round(number, sparsifier.sparsity, state)


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() if isinstance(value, torch.Tensor) else value for name, value in state.items()}

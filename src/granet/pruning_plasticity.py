"""Pruning plasticity of a model in the middle of a training loop.

The probe of `granet plasticity` as a function: prune a copy of the model, train the copy on for k steps at the learning
rate it has now, and see what accuracy comes back (Liu et al. 2021, section 3). The model itself, its optimizer and all
random numbers are left exactly as they were.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from granet.checks import check_count, check_rate
from granet.distributions import PruningDistribution
from granet.methods.prune_once import PruneAndRegenerate, PruneOnce
from granet.model_inputs import arguments
from granet.sparsifier import sparsify

_AGAIN = "batches: must be an iterable with a batch or more that can be gone through again"

PROBES: dict[str, type[PruneOnce]] = {"without": PruneOnce, "with": PruneAndRegenerate}


@dataclass(frozen=True)
class PlasticityPoint:
    """How one copy recovered."""

    rate: float
    regeneration: str
    """``"with"`` or ``"without"``."""
    before: float
    """What ``evaluate`` returned for the model."""
    after: float
    """What it returned for the copy, pruned and trained on."""
    epoch: int | None = None
    """The epoch, if a `PlasticityProbe` did it."""

    @property
    def plasticity(self) -> float:
        """after - before."""
        return self.after - self.before


def plasticity(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Any, Any]],
    loss: Callable[[Any, Any], Tensor],
    evaluate: Callable[[nn.Module], float],
    *,
    steps: int,
    rates: Sequence[float] = (0.2, 0.5, 0.9, 0.98),
    distribution: PruningDistribution = "global",
    pattern: str = "weight",
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
) -> list[PlasticityPoint]:
    """Prune and train on a copy of the model for each rate, without and with regeneration.

    Weights that are zero now count as pruned already, and a rate is a share of the others. The copy's masks then stay
    fixed, whatever method trains the model itself. Needs memory for a second model and optimizer.

    Args:
        optimizer: the model's; copies of it train the copies, at its present learning rate.
        batches: (inputs, targets) on the model's device, read from the start for each copy, and again if too few;
            inputs as in `granet.sparsify`.
        loss: ``loss(outputs, targets)``, one number.
        evaluate: ``evaluate(model)``, the accuracy; it may leave the model in eval mode.
        steps: optimizer steps of continued training.
        rates: shares of the weights left to prune, each in (0, 1).
        distribution, pattern, include, exclude: as in `granet.sparsify` and `granet.PruneOnce`.
    """
    check_count("steps", steps)
    if not isinstance(rates, Sequence) or not rates:
        raise ValueError(f"rates={rates!r}: must have one rate or more")
    for rate in rates:
        check_rate("rates", rate)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("optimizer=LBFGS: must train the copies by a step() without a closure")
    if isinstance(batches, Iterator):  # each copy would see other batches, and the caller would miss them
        raise ValueError(_AGAIN)
    points = []
    with _undisturbed(batches):
        before = float(evaluate(copy.deepcopy(model)))
        for rate in rates:
            for regeneration, cls in PROBES.items():
                method = cls(rate=rate, distribution=distribution, pattern=pattern)
                twin, copied = copy.deepcopy((model, optimizer))  # together: it then holds the copy's parameters
                with _undisturbed(batches):  # each copy sees the same batches
                    sparsifier = sparsify(twin, copied, method, total_steps=steps, include=include, exclude=exclude)
                    _train(twin, copied, batches, loss, steps)
                    sparsifier.remove()
                    points.append(PlasticityPoint(rate, regeneration, before, float(evaluate(twin))))
    return points


@dataclass
class PlasticityProbe:
    """Probes a training loop once in ``every`` epochs: call ``probe(epoch)`` at the end of each epoch.

    probe = granet.PlasticityProbe(5, model, optimizer, loader, loss, evaluate, {"steps": 100})
    for epoch in range(1, 161):
        ...
        probe(epoch)
    probe.points  # all that were measured
    """

    every: int
    model: nn.Module
    optimizer: Optimizer
    batches: Iterable[tuple[Any, Any]]
    loss: Callable[[Any, Any], Tensor]
    evaluate: Callable[[nn.Module], float]
    options: dict[str, Any]
    """The named arguments of `granet.plasticity`, ``steps`` at least."""
    points: list[PlasticityPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_count("every", self.every)

    def __call__(self, epoch: int) -> list[PlasticityPoint]:
        """The points of this epoch, none if it is not one to probe."""
        if epoch % self.every:
            return []
        probed = plasticity(self.model, self.optimizer, self.batches, self.loss, self.evaluate, **self.options)
        found = [replace(point, epoch=epoch) for point in probed]
        self.points += found
        return found


def _train(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Any, Any]],
    loss: Callable[[Any, Any], Tensor],
    steps: int,
) -> None:
    model.train()
    for inputs, targets in _cycle(batches, steps):
        optimizer.zero_grad(set_to_none=True)
        positional, named = arguments(inputs)
        loss(model(*positional, **named), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _cycle(batches: Iterable[tuple[Any, Any]], count: int) -> Iterator[tuple[Any, Any]]:
    """``count`` batches, from the start again where there are fewer."""
    done = 0
    while done < count:
        at_start = done
        for batch in batches:
            yield batch
            done += 1
            if done == count:
                return
        if done == at_start:
            raise ValueError(_AGAIN)


@contextmanager
def _undisturbed(batches: object) -> Iterator[None]:
    """Afterwards the random numbers of torch, numpy, Python and the loader are where they were.

    So is a loader with persistent workers, whose only iterator may be in the middle of an epoch: it gets another.
    """
    loader = batches if isinstance(batches, DataLoader) else None
    if loader is not None:
        persistent, loader._iterator = loader._iterator, None
    owners = [batches, getattr(batches, "batch_sampler", None)]
    owners += [getattr(owner, "sampler", None) for owner in owners]
    held = {getattr(owner, "generator", None) for owner in owners}
    generators = [(generator, generator.get_state()) for generator in held if isinstance(generator, torch.Generator)]
    devices = range(torch.cuda.device_count())
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        for generator, state in generators:
            generator.set_state(state)
        if loader is not None:
            loader._iterator = persistent

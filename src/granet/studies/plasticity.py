"""Pruning plasticity (Liu et al. 2021, sections 3 and A): how well a net recovers from pruning, over its training.

A trunk is a run at one pre-trained sparsity that keeps its state after some epochs. A branch goes on from one of those,
after one-shot pruning at one rate, with or without regeneration, and answers one question:

    plasticity   k epochs at the learning rate of that moment:      acc(Contrain^k(W_t * m_t, a_t)) - acc(W_t)
    final        to the end, over the rest of the schedule:         acc(Contrain^(T-t)(W_t * m_t, a_[t+1:T])) - acc(W_T)

Both are ordinary runs, so the sweep runner can train several at once, and resume them after a crash.

Two choices that the paper leaves open: a pruning rate is a share of the weights that the trunk has left, since a net of
sparsity 0.98 could not be "mildly pruned" by a share of all weights; and a sparse trunk has random masks of uniform
density that never change, so that only the probe itself changes a mask.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from granet.checks import check_choice, check_count, check_items, check_rate, check_share
from granet.distributions import PRUNING_DISTRIBUTIONS
from granet.methods import DENSE, Static
from granet.methods.prune_once import PruneOnce
from granet.sparsifier import sparsify
from granet.training.feeds import Data
from granet.training.recipe import Recipe
from granet.training.rundir import run_name
from granet.training.setup import make_model, make_sgd

MEASURES = ("plasticity", "final")
REGENERATION = {"without": "prune-once", "with": "prune-regrow"}
"""The rows of the figure, and the methods of their branches."""

_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("checkpoints", "seeds"), ((int,), "whole numbers")),
    **dict.fromkeys(("sparsities", "rates"), ((int, float), "numbers")),
    **dict.fromkeys(("distributions", "measures"), ((str,), "text")),
}
"""What the fields of a study that are lists hold."""


@dataclass(frozen=True)
class Study:
    """All trunks and branches of one question."""

    recipe: Recipe
    """What all runs share: model, data, schedule and so on."""
    checkpoints: tuple[int, ...]
    """Epochs after which a trunk is kept, and pruned."""
    sparsities: tuple[float, ...] = (0.0, 0.5, 0.9, 0.98)
    """Pre-trained sparsities, one trunk each."""
    rates: tuple[float, ...] = (0.2, 0.5, 0.9, 0.98)
    """Pruning rates, shares of the weights that are left."""
    continue_epochs: int = 30
    """k, the epochs of continued training at the learning rate of the moment."""
    distributions: tuple[str, ...] = ("global",)
    """Whether layers are pruned together (``global``) or each alone (``uniform``)."""
    pattern: str = "weight"
    """``weight``, or ``filter`` for structured pruning."""
    measures: tuple[str, ...] = MEASURES
    """Which questions are asked."""
    seeds: tuple[int, ...] = (0,)
    """Each has trunks and branches of its own; figures show the mean."""

    def __post_init__(self) -> None:
        for field, kinds in _KINDS.items():
            values = getattr(self, field)
            check_items(field, values, *kinds)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{field}={list(values)!r}: must have one entry or more, each once")
        check_count("continue_epochs", self.continue_epochs)
        for rate in self.rates:
            check_rate("rates", rate)
        PruneOnce(rate=self.rates[0], pattern=self.pattern)  # it checks the pattern
        for sparsity in self.sparsities:
            check_share("sparsities", sparsity)
        for distribution in self.distributions:
            check_choice("distributions", distribution, PRUNING_DISTRIBUTIONS)
        for measure in self.measures:
            check_choice("measures", measure, MEASURES)
        last = self.recipe.scheduled_epochs
        for epoch in self.checkpoints:
            check_count("checkpoints", epoch)
            if epoch >= last:
                raise ValueError(f"checkpoints={epoch!r}: must be an epoch before the last, {last}")
            if "plasticity" in self.measures and epoch + self.continue_epochs > last:
                raise ValueError(
                    f"continue_epochs={self.continue_epochs!r}: from checkpoint {epoch} it goes past the end of the "
                    f"schedule, epoch {last}; prune earlier or continue for less"
                )
        self.trunks()  # a recipe checks the rest

    def check_fit(self, data: Data) -> None:
        """ValueError if the study names something that the network for these images lacks; trains nothing."""
        model = make_model(self.recipe, data)
        method = Static(sparsity=max(self.sparsities), distribution="uniform", pattern=self.pattern)
        sparsify(model, make_sgd(self.recipe, model), method, exclude=self.recipe.exclude)

    def trunk(self, sparsity: float, seed: int) -> Recipe:
        """The pre-training at that sparsity."""
        shared = dataclasses.replace(self.recipe, seed=seed, keep=self.checkpoints)
        if sparsity == 0:
            return dataclasses.replace(shared, method=DENSE, method_fields={})
        fields = {"sparsity": sparsity, "distribution": "uniform"} | self._pattern
        return dataclasses.replace(shared, method="static", method_fields=fields)

    def trunks(self) -> list[Recipe]:
        """All pre-trainings, to be run before the branches."""
        return [self.trunk(sparsity, seed) for seed in self.seeds for sparsity in self.sparsities]

    def branches(self) -> list[Branch]:
        """All continuations; those of an early epoch, the longest, come first."""
        return [
            Branch(self, seed, epoch, measure, distribution, sparsity, rate, regeneration)
            for seed in self.seeds
            for epoch in sorted(self.checkpoints)
            for measure in self.measures
            for distribution in self.distributions
            for sparsity in self.sparsities
            for rate in self.rates
            for regeneration in REGENERATION
        ]

    def recipes(self) -> list[Recipe]:
        """Every run of the study."""
        return [*self.trunks(), *(branch.recipe for branch in self.branches())]

    @property
    def _pattern(self) -> dict[str, str]:
        return {} if self.pattern == "weight" else {"pattern": self.pattern}


@dataclass(frozen=True)
class Branch:
    """One point of a figure for one seed."""

    study: Study
    seed: int
    epoch: int
    measure: str
    distribution: str
    sparsity: float
    """Of the trunk."""
    rate: float
    regeneration: str

    @property
    def trunk(self) -> Recipe:
        return self.study.trunk(self.sparsity, self.seed)

    @property
    def recipe(self) -> Recipe:
        """The run that measures it."""
        return dataclasses.replace(
            self.trunk,
            method=REGENERATION[self.regeneration],
            method_fields={"rate": self.rate, "distribution": self.distribution} | self.study._pattern,
            parent=run_name(self.trunk),
            keep=(),
            branch_epoch=self.epoch,
            hold=self.study.continue_epochs if self.measure == "plasticity" else 0,
        )

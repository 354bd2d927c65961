"""FLOPs of a whole training under masks that change.

Counted per example, as in the appendix of RigL (Evci et al., 2020, arXiv 1911.11134): with f_D the FLOPs of a forward
pass through the dense network and f_S of one through the sparse network of that step, a step costs

    3 f_S           forward f_S, gradient of the activations f_S, gradient of the active weights f_S
    2 f_S + f_D     where the method needs the gradient of every weight
    3 n f_D         where all weights are in use until the end and every pass is made n times: n = 2 for the means and
                    the variances of variational dropout

`Method.dense_gradient` and `Method.dense_passes` (n) say which steps those are. Finding the new masks, the loss and the
optimizer's own arithmetic are not counted, nor are passes over data before the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from granet.flop_counting.report import FlopsReport
from granet.methods.base import DenseGradient
from granet.methods.gradient_memory import MeanGradient
from granet.sparsifier import Sparsifier, UpdateRecord


@dataclass(frozen=True)
class TrainingCost:
    """What a number of optimizer steps cost, with one example input in each."""

    steps: int
    flops: int
    dense_step: int
    """FLOPs of one step of dense training, 3 f_D."""

    @property
    def ratio(self) -> float:
        """FLOPs over those of dense training for as many steps; 1.0 before the first."""
        return self.relative_to(self.steps) if self.steps else 1.0

    def relative_to(self, steps: int) -> float:
        """FLOPs over those of dense training for `steps` steps: for a run twice as long the ratio doubles."""
        if steps < 1:
            raise ValueError(f"steps={steps!r}: must be 1 or more")
        return self.flops / (self.dense_step * steps)


@dataclass(frozen=True)
class TrainingFlops:
    """The cost of training, to be asked for after any number of steps.

    It keeps no running count: `after` computes the cost from the history each time, so there is nothing to save or
    resume. The cost of a forward pass is computed once for each set of masks.

    >>> from granet.flop_counting.report import LayerFlops
    >>> report = FlopsReport((LayerFlops("0", weights=4, active=4, dense=80, sparse=80, parameter="0.weight"),))
    >>> static = TrainingFlops(report, layers=("0.weight",), active=(1,), dense_gradient="never")
    >>> static.after(100).ratio
    0.25
    """

    report: FlopsReport
    """FLOPs of one forward pass. Fixed work that it includes is part of f_S and f_D."""
    layers: tuple[str, ...]
    """The sparse parameters, in the order of `UpdateRecord.active`."""
    active: tuple[int, ...]
    """Their active weights before the first step."""
    dense_gradient: DenseGradient
    batch_count: int = 1
    """How many steps' dense gradients an update reads, its own step included; all are counted."""
    dense_passes: int = 0
    """How often each pass is made with every weight; 0: once, with the active ones."""
    _known: dict[tuple[int, ...], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dense_gradient not in get_args(DenseGradient):
            allowed = ", ".join(map(repr, get_args(DenseGradient)))
            raise ValueError(f"dense_gradient={self.dense_gradient!r}: must be one of {allowed}")
        if self.dense_passes and self.dense_gradient != "always":
            raise ValueError(
                f"dense_gradient={self.dense_gradient!r}: must be 'always' with dense_passes={self.dense_passes!r}"
            )
        self.forward(self.active)

    @staticmethod
    def of(report: FlopsReport, sparsifier: Sparsifier) -> TrainingFlops:
        """For a run of this sparsifier, before its first step; load a saved state afterwards."""
        if sparsifier.step:
            raise ValueError(f"sparsifier.step={sparsifier.step}: must be 0, the masks before the first step count too")
        active, method = sparsifier.active, sparsifier.method
        memory = method.gradient_memory
        batch_count = memory.batch_count if isinstance(memory, MeanGradient) else 1
        return TrainingFlops(
            report, tuple(active), tuple(active.values()), method.dense_gradient, batch_count, method.dense_passes
        )

    def forward(self, active: Sequence[int]) -> int:
        """f_S: FLOPs of a forward pass with these numbers of active weights in the layers."""
        if len(active) != len(self.layers):
            raise ValueError(
                f"active={tuple(active)!r}: must have one number for each of the {len(self.layers)} layers"
            )
        if (known := self._known.get(tuple(active))) is None:
            known = self.report.with_active(dict(zip(self.layers, active, strict=True))).sparse
            self._known[tuple(active)] = known
        return known

    def after(self, steps: int, history: Sequence[UpdateRecord] = ()) -> TrainingCost:
        """The cost of the first `steps` steps. `history` has the updates, in order; later ones do not matter.

        An update after step t reads the gradient of step t, and its masks hold from step t + 1 on. Valid up to
        `Sparsifier.finish`: a step of fine-tuning after that costs 3 f_S, with f_S =
        `forward(tuple(sparsifier.active.values()))`.
        """
        if steps < 0:
            raise ValueError(f"steps={steps!r}: must be 0 or more")
        f_dense = self.report.dense
        active, f_sparse = self.active, self.forward(self.active)
        total = done = 0
        for record in history:
            if record.step > steps:
                break
            total += self._stretch(record.step - done, f_sparse)
            if self.dense_gradient == "on updates":
                total += self.batch_count * (f_dense - f_sparse)
            done = record.step
            if record.active != active:
                active, f_sparse = record.active, self.forward(record.active)
        total += self._stretch(steps - done, f_sparse)
        return TrainingCost(steps, total, 3 * f_dense)

    def _stretch(self, steps: int, f_sparse: int) -> int:
        """The cost of steps with the same masks, apart from dense gradients on updates."""
        if self.dense_passes:
            return steps * 3 * self.dense_passes * self.report.dense
        gradient = self.report.dense if self.dense_gradient == "always" else f_sparse
        return steps * (2 * f_sparse + gradient)

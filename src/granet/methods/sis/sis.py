"""SIS: sparse weights that leave every layer's outputs near what they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from granet.checks import check_count, check_share
from granet.methods.base import Method
from granet.methods.registry import register
from granet.methods.sis.inclusion import constraint, least_weights
from granet.methods.sis.layer_inputs import Seen, watch
from granet.model_inputs import each_tensor
from granet.net import SparseNet
from granet.patterns import SINGLE
from granet.probe import Tensors, full_precision
from granet.scores import given
from granet.search import bisect_knob

_NEAR = 0.01
"""The search ends when the sparsity is this near; the smallest weights make up the rest."""
_JUMP = 0.05
"""In a small net the sparsity moves in jumps: if the search ends farther off, they may make up this much."""


@register(
    "sis",
    paper="Verma & Pesquet 2021, https://sagarverma.github.io/compression",
    score="l1 norm, with the outputs kept",
    distributed="one tolerance for all layers",
    knob="exact with `sparsity`, or `tolerance`",
    cost="a first run, the layers' inputs on 4 batches, 120 passes through each for every tolerance tried",
)
@dataclass(frozen=True, kw_only=True)
class SIS(Method):
    """Subdifferential inclusion: shrink the l1 norm of each layer of a finished first run while its outputs stay near.

    Each layer by itself gets the weights of smallest l1 norm whose outputs, on ``batch_count`` batches, stay within
    ``tolerance`` of the original ones (see `granet.methods.sis.inclusion` for the problem, how it is solved, and what
    in it is our reading). The model starts from these weights and the first run's other values, to be fine-tuned.
    Either ``tolerance`` is given and the sparsity follows, or ``sparsity`` is given and the tolerance, the same for all
    layers, is searched for; the smallest weights then make up the exact number. For blocks and filters the norm of the
    group lasso replaces the l1 norm, so that they are dropped whole; where several are dropped at once, the search ends
    at the sparsest solution that leaves enough weights.
    """

    sparsity: float = 0.0
    tolerance: float | None = None
    """Relative to what removing the layer would do: 0 allows no change, 1 any."""
    batch_count: int = 4
    """If a layer has more inputs than these hold samples, they hardly constrain it."""
    iterations: int = 100
    """Steps of the splitting, for each layer."""

    needs_batches: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True
    takes_groups: ClassVar[tuple[str, ...]] = ()
    needs_trained: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tolerance is None and self.sparsity == 0:
            raise ValueError("sparsity: sis needs it, a share of zeros in (0, 1), or a tolerance")
        if self.tolerance is not None:
            check_share("tolerance", self.tolerance)
            if self.sparsity > 0:
                raise ValueError(f"tolerance={self.tolerance!r}: gives a sparsity of its own; leave out one of the two")
        for field in ("batch_count", "iterations"):
            check_count(field, getattr(self, field))

    def begin(self, net: SparseNet) -> None:
        probe = net.probe
        trained, own = probe.state_to_start_from(), probe.state()
        state = {name: full_precision(trained.get(name, value).to(value)) for name, value in own.items()}
        weights = probe.finite_weights(state)
        batches = [(each_tensor(full_precision, inputs), targets) for inputs, targets in probe.draw(self.batch_count)]
        seen = watch(probe, state, batches)
        _check_outputs(seen, weights)
        solve = partial(self._solve, net, seen, weights)
        solution = self._search(net, solve) if self.tolerance is None else solve(self.tolerance)
        sparsity = self.sparsity if self.has_target else _zeros(net, solution)
        net.prune_to(sparsity, given(solution))
        net.start = probe.with_weights(trained, solution)

    def _search(self, net: SparseNet, solve: Callable[[float], Tensors]) -> Tensors:
        """The solution whose sparsity is a little below the one asked for, so that enough weights are left."""
        enough: Tensors = {}  # the sparsest solution tried so far that leaves enough weights
        most, tried = -1.0, []

        def sparsity_of(tolerance: float) -> float:
            nonlocal enough, most
            solution = solve(tolerance)
            sparsity = _zeros(net, solution)
            tried.append(sparsity)
            if most < sparsity <= self.sparsity + 1e-9:
                enough, most = solution, sparsity
            return sparsity

        with suppress(ValueError):
            bisect_knob(sparsity_of, self.sparsity - _NEAR / 2, 0, 1, _NEAR / 2 + 1e-9)
        if enough and (net.units != SINGLE or most >= self.sparsity - _JUMP):
            return enough
        nearest = min(tried, key=lambda sparsity: abs(sparsity - self.sparsity))
        raise ValueError(
            f"sparsity={self.sparsity!r}: no tolerance gives it; the nearest of {len(tried)} gave {nearest:.6g}"
        )

    def _solve(self, net: SparseNet, seen: Mapping[str, list[Seen]], weights: Tensors, tolerance: float) -> Tensors:
        solution = {}
        for layer in net.layers:
            weight, shrink = weights[layer.name], partial(net.units.shrink, layer)
            constraints = [constraint(one.preactivation, weight, one.rectified, tolerance) for one in seen[layer.name]]
            solution[layer.name] = least_weights(weight, constraints, tolerance, self.iterations, shrink)
        return solution


def _check_outputs(seen: Mapping[str, list[Seen]], weights: Tensors) -> None:
    for name, calls in seen.items():
        if not all(bool(one.preactivation(weights[name]).isfinite().all()) for one in calls):
            raise ValueError(f"batches: sis is to keep the outputs of {name!r}, which must be finite everywhere")


def _zeros(net: SparseNet, weights: Tensors) -> float:
    """The share of weights that are in all-zero units."""
    left = sum(int(net.units.size(layer, weights[layer.name]).count_nonzero()) for layer in net.layers)
    return 1 - left / net.numel

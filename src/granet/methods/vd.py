"""VD: sparse variational dropout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer

from granet.checks import check_count, check_number
from granet.clock import Clock, Time
from granet.hidden import Hidden, VariationalNoise
from granet.masking import all_finite
from granet.methods.base import Method, recorded
from granet.methods.registry import register
from granet.net import SparseNet
from granet.patterns import units_of
from granet.scores import signal_to_noise
from granet.weights import SparseLayer


@register(
    "vd",
    paper="Molchanov et al. 2017, arXiv 1701.05369",
    score="signal to noise",
    growth="signal to noise, until `finish()`",
    distributed="learned, one threshold for all layers",
    knob="`kl_scale`; exact in `finish()` if `sparsity` is given",
    cost="twice the trained weights, a second pass through every layer",
    dense_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class VD(Method):
    """Sparse variational dropout: learn the noise of every weight, and drop the weights that are mostly noise.

    Weights are N(theta, alpha theta^2). To the loss, a mean over the batch, is added the KL divergence to a log-uniform
    prior, divided by the number of training ``examples``; its weight rises linearly from 0 at ``start`` to ``kl_scale``
    at ``end``. Weights with log alpha above ``threshold`` count as pruned: masks and evaluation mode leave them out
    from the start, and ``sparsifier.finish()`` makes them zero. A block or filter is cut as a whole, by its ratio of
    noise to signal, log(sum sigma^2 / sum theta^2) over its weights.

    The optimizer's weight decay acts on theta, not on the noise; the method needs none. The divergence takes log
    alpha as it is; the authors' code clips it to [-8, 8].
    """

    sparsity: float = 0.0
    """Above 0, ``finish()`` keeps the smallest alphas of all layers, to exactly this sparsity, without a threshold."""
    examples: int = 50_000
    """The number of training examples."""
    kl_scale: float = 1.0
    """Sets the sparsity: larger is sparser."""
    start: Time = 0
    end: Time = "50%"
    threshold: float = 3.0
    log_sigma2: float = -10.0
    """Where the log variance of every weight starts."""
    every: Time = 1000
    """How often a record goes into the history; the masks follow log alpha at every step."""

    hidden: ClassVar[bool] = True
    dense_passes: ClassVar[int] = 2  # for means and for variances; weights that count as pruned are still trained
    takes_pattern: ClassVar[bool] = True
    takes_groups: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("examples", self.examples)
        check_number("kl_scale", self.kl_scale, least=0)
        check_number("threshold", self.threshold)
        check_number("log_sigma2", self.log_sigma2)

    def begin(self, net: SparseNet) -> None:
        """Start dense, except for weights that are mostly noise already."""

    def hide(self, model: nn.Module, layers: Sequence[SparseLayer], optimizer: Optimizer) -> Hidden:
        units = units_of(self.pattern)
        return VariationalNoise(model, layers, optimizer, self.log_sigma2, self.threshold, self.kl_weight, units)

    def kl_weight(self, clock: Clock) -> float:
        """What the KL divergence is multiplied by in the loss of the next step."""
        start, end = clock.steps(self.start), clock.steps(self.end)
        ramp = 1.0 if clock.step >= end else max(0, clock.step - start) / max(1, end - start)
        return self.kl_scale * ramp / self.examples

    def updates(self, clock: Clock) -> range:
        start, end = clock.steps(self.start, "start"), clock.steps(self.end, "end")
        if end < start:
            raise ValueError(f"end={self.end!r}: must not be before start={self.start!r} (steps {end} and {start})")
        return recorded(clock, self.every)

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.recount()

    def finish(self, net: SparseNet) -> None:
        for layer in net.layers:
            assert layer.hidden is not None
            if not all_finite([layer.weight.detach(), layer.hidden.detach()], net.device):
                raise ValueError(
                    f"method='vd': {layer.name!r} must hold finite values only, so that it has a log alpha"
                )
        if self.sparsity > 0:
            net.reselect(self.sparsity, signal_to_noise(net.units))
        else:
            net.grow_to_floor(signal_to_noise(net.units))

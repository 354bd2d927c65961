"""STR: soft threshold reparameterization."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.optim import Optimizer

from granet.checks import check_number
from granet.clock import Clock, Time
from granet.hidden import Hidden, SoftThreshold
from granet.methods.base import Method, recorded
from granet.methods.registry import register
from granet.net import SparseNet
from granet.patterns import units_of
from granet.scores import magnitude
from granet.weights import SparseLayer


@register(
    "str",
    paper="Kusupati et al. 2020, arXiv 2002.03231",
    score="magnitude above a threshold",
    growth="magnitude of the hidden weights above the threshold",
    distributed="learned, a threshold for each layer",
    knob="`s_init`, and weight decay or `s_decay`; down to `sparsity` in `finish()`, if given",
    cost="a second copy of the weights",
    dense_to_sparse=True,
)
@dataclass(frozen=True, kw_only=True)
class STR(Method):
    """Soft thresholds, one for each layer, learned with the weights: w <- sign(w) relu(|w| - sigmoid(s)).

    The sparsity follows from ``s_init`` and the decay that pulls s up to zero: a less negative ``s_init`` ends sparser,
    and sooner. A layer may be emptied. Under SGD with momentum m and decay d, s has shrunk by the factor exp(-d sum(lr)
    / (1 - m)) at the end; the threshold begins to matter when s is near -7.

    Blocks and filters have the soft threshold of the group lasso, w <- w relu(1 - sigmoid(s) / size(w)), with the root
    of the mean square of a unit's weights as its size.
    """

    sparsity: float = 0.0
    """Above 0, ``finish()`` cuts the weights that are least above their thresholds, in all layers together, to exactly
    this sparsity; a net that is sparser already stays so. If training ended more than a percentage point off, a warning
    says where."""
    s_init: float = -100.0
    s_decay: float | None = None
    """The weight decay of s; None: the same as that of the weights."""
    every: Time = 1000
    """How often a record goes into the history; the masks follow the weights at every step."""

    hidden: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True
    takes_groups: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("s_init", self.s_init)
        if self.s_decay is not None:
            check_number("s_decay", self.s_decay, least=0)

    def begin(self, net: SparseNet) -> None:
        """Start dense, except for weights below the first threshold."""

    def hide(self, model: nn.Module, layers: Sequence[SparseLayer], optimizer: Optimizer) -> Hidden:
        return SoftThreshold(layers, optimizer, self.s_init, units_of(self.pattern), self.s_decay)

    def updates(self, clock: Clock) -> range:
        return recorded(clock, self.every)

    def update(self, net: SparseNet, clock: Clock) -> None:
        net.recount()

    def finish(self, net: SparseNet) -> None:
        reached = 1 - int(net.active.sum()) / net.numel
        if self.sparsity > 0 and abs(reached - self.sparsity) > 0.01:
            warnings.warn(
                f"granet: sparsity={self.sparsity!r}: str reached {reached:.4f} by itself; a larger "
                f"s_init={self.s_init!r} or more decay makes it sparser",
                stacklevel=3,
            )
        net.prune_to(self.sparsity, magnitude)

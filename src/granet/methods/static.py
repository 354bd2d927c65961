"""A random mask that never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.distributions import distribution
from granet.methods.base import Method
from granet.methods.registry import register
from granet.net import SparseNet


@register(
    "static",
    paper="Liu et al. 2022, arXiv 2202.02643",
    score="random",
    sparse_to_sparse=True,
    before_training=True,
)
@dataclass(frozen=True, kw_only=True)
class Static(Method):
    """A random sparse network, fixed for the whole training: the baseline every dynamic method must beat."""

    distribution: str = "erk"

    takes_pattern: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        distribution(self.distribution)

    def begin(self, net: SparseNet) -> None:
        net.sprout(self.sparsity, distribution(self.distribution))

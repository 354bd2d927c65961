"""What methods that grow by gradient share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.checks import check_count
from granet.methods.base import Method
from granet.methods.gradient_memory import GradientMemory, MeanGradient


@dataclass(frozen=True, kw_only=True)
class GrowsByGradient(Method):
    """Weights grow where the dense gradient is largest."""

    grow_batch_count: int = 1
    """Growth reads the mean gradient of this many steps: the update step and those just before it."""

    needs_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("grow_batch_count", self.grow_batch_count)

    @property
    def gradient_memory(self) -> GradientMemory | None:
        return MeanGradient(self.grow_batch_count) if self.grow_batch_count > 1 else None

"""What a sparse weight is, apart from where it is stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from granet.weights.orientation import ROWS_FIRST, Orientation


@dataclass(frozen=True)
class WeightId:
    """A sparse weight's name and place among the others, and its shape as a whole: the same on every rank."""

    name: str
    index: int
    seed: int
    shape: tuple[int, ...]
    """Of the whole weight, of which a rank may store a part."""
    orientation: Orientation = ROWS_FIRST

    @property
    def numel(self) -> int:
        """The number of weights as a whole."""
        return math.prod(self.shape)

    @property
    def neurons(self) -> tuple[int, ...]:
        """The shape [out, in, kernel ...] that patterns see, the matrices of experts one after another."""
        return self.orientation.neuron_shape(self.shape)

    @property
    def matrices(self) -> Sequence[tuple[int, ...]]:
        """The shapes that distributions share a budget among: one for each matrix, [out, in, kernel ...].

        Most weights are one matrix. Its shape is as stored, whose dimensions Erdős-Rényi densities add up.
        """
        if self.orientation.experts is None and self.orientation.parts == 1:
            return (self.shape,)
        count, shape = self.orientation.matrices(self.shape)
        return (shape,) * count

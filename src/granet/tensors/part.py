"""Where the elements of a shard lie in the whole weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor

Reduce = Callable[[Tensor], Tensor]
"""Sums integers, [layers, ...], over the ranks that hold parts of each layer; it may do so in place."""


def identity(numbers: Tensor) -> Tensor:
    """The sum over ranks where one rank holds everything."""
    return numbers


@dataclass(frozen=True)
class Part:
    """The elements of a weight that are here: runs of equal length, equally far apart in the whole.

    A slice along dimension 0 is one run. A slice along another dimension has a run for each index of the dimensions
    before it, and these may be sliced along dimension 0 at the same time. Either way the order of the elements here is
    their order in the whole.
    """

    whole: int
    """Elements of the whole weight."""
    start: int
    """Where in the whole the first run begins."""
    run: int
    """The length of a run."""
    gap: int
    """How many elements that are not here follow a run."""

    @classmethod
    def of(cls, whole: Sequence[int], offset: Sequence[int], shape: Sequence[int]) -> Part:
        """The box of that shape, at that offset in a weight of the shape ``whole``.

        >>> Part.of((4, 6), (0, 2), (4, 3))
        Part(whole=24, start=2, run=3, gap=3)
        """
        if 0 in shape:
            return cls(prod(whole), 0, 1, 0)
        cut = [dim for dim in range(1, len(whole)) if shape[dim] < whole[dim]]
        if len(cut) > 1:
            raise ValueError(
                f"shape={tuple(shape)}: must be cut along at most one dimension beside the first of {tuple(whole)}"
            )
        start = sum(index * prod(whole[dim + 1 :]) for dim, index in enumerate(offset))
        dim = cut[0] if cut else 0
        gap = prod(whole[dim:]) - prod(shape[dim:]) if cut else 0
        return cls(prod(whole), start, prod(shape[dim:]), gap)

    def places(self, positions: Tensor) -> Tensor:
        """Where in the whole elements are, by their positions here."""
        return positions + positions // self.run * self.gap + self.start if self.gap else positions + self.start

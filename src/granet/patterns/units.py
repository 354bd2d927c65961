"""Units are what a pattern keeps or drops whole; here are their means and sizes, for methods that do more than rank.

Every figure of a unit is repeated at each of its weights, in the shape of the layer's weight, so that a formula for
single weights reads the same for whole blocks and filters. For a single weight it is exactly that weight's own figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from granet.patterns.patterns import Blocks, parse_pattern
from granet.weights import SparseLayer


@dataclass(frozen=True)
class Units:
    """The blocks or filters of a pattern; without ``blocks``, single weights (also under N:M and fan-in)."""

    blocks: Blocks | None = None

    def mean(self, layer: SparseLayer, values: Tensor) -> Tensor:
        """The mean of a unit's values, signs included."""
        return values if self.blocks is None else self._each(layer, values, lambda split: split.mean((1, 3)))

    def log_mean(self, layer: SparseLayer, values: Tensor) -> Tensor:
        """log(mean of exp(values))."""
        if self.blocks is None:
            return values
        log_size = math.log(self.blocks.quantum(layer))
        return self._each(layer, values, lambda split: split.logsumexp((1, 3)) - log_size)

    def size(self, layer: SparseLayer, values: Tensor) -> Tensor:
        """The root of the mean square, |v| for a single weight."""
        if self.blocks is None:
            return values.abs()
        return self._each(layer, values, lambda split: split.square().mean((1, 3)).sqrt())

    def direction(self, layer: SparseLayer, values: Tensor) -> Tensor:
        """v / size(v), sign(v) for a single weight; 0 where the whole unit is 0."""
        if self.blocks is None:
            return values.sign()
        size = self.size(layer, values)
        return torch.where(size == 0, 0.0, values / size)

    def shrink(self, layer: SparseLayer, values: Tensor, threshold: float | Tensor) -> Tensor:
        r"""The soft threshold of units: those not larger than ``threshold`` become zero as a whole.

        .. math:: v \leftarrow v \, \mathrm{relu}(1 - t / \mathrm{size}(v))

        For single weights this is sign(v) relu(|v| - t), the proximity operator of t |v|. For units of n weights it is
        that of the group lasso, t sqrt(n) |v|_2 (Yuan & Lin, 2006).
        """
        return self.direction(layer, values) * (self.size(layer, values) - threshold).relu()

    def _each(self, layer: SparseLayer, values: Tensor, figure: Callable[[Tensor], Tensor]) -> Tensor:
        """A figure of [rows of blocks, rows of a block, columns of blocks, columns of a block], in double precision."""
        assert self.blocks is not None
        figures = figure(self.blocks.split(layer, values.double()))
        return self.blocks.spread(layer, figures.to(values.dtype).reshape(-1))


SINGLE = Units()


def units_of(pattern: str) -> Units:
    """The units of the pattern written that way."""
    parsed = parse_pattern(pattern)
    return Units(parsed if isinstance(parsed, Blocks) else None)

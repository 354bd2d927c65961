"""What is known of the tensors of a forward pass whatever the input is: elements that are always the same number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Known:
    """A tensor of which some elements are known.

    Both tensors have its rank; where they have a size of 1, all elements along that dimension are alike.
    """

    where: Tensor
    value: Tensor
    """0 where it is not known."""

    @property
    def zero(self) -> Tensor:
        """Where it is known to be zero."""
        return self.where & (self.value == 0)

    @property
    def any(self) -> bool:
        return bool(self.where.any())

    @property
    def all(self) -> bool:
        return bool(self.where.all())

    def along(self, dim: int, size: int) -> Known:
        """As vectors along one dimension: known where all elements that share an index are known and alike."""
        others = [axis for axis in range(self.where.ndim) if axis != dim]
        alike = self.only_along(others)
        return Known(alike.where.flatten().expand(size), alike.value.flatten().expand(size))

    def only_along(self, dims: list[int]) -> Known:
        """With size 1 along these dimensions: known where all elements along them are known and alike."""
        if not dims:
            return self
        low, high = self.value.amin(dims, keepdim=True), self.value.amax(dims, keepdim=True)
        return known(self.where.all(dims, keepdim=True) if self.where.ndim else self.where, low, low == high)

    def full(self, shape: Sequence[int]) -> Known:
        return Known(self.where.expand(tuple(shape)), self.value.expand(tuple(shape)))


def known(where: Tensor, value: Tensor, *conditions: Tensor) -> Known:
    """Known under all these conditions, unless it is no finite number; as small as it can be."""
    for condition in (*conditions, value.isfinite()):
        where = where & condition
    where, value = _small(where), _small(torch.where(where, value, 0))
    return Known(where, value)


def constant(value: Tensor) -> Known:
    """A tensor that is known as a whole, in the type that it has."""
    return Known(torch.ones([1] * value.ndim, dtype=torch.bool, device=value.device), value.detach())


def zeros_at(where: Tensor) -> Known:
    """Known to be zero there, and nothing else of it."""
    return Known(where, torch.zeros([1] * where.ndim, dtype=torch.float64, device=where.device))


def unknown(rank: int, device: torch.device | str = "cpu") -> Known:
    return zeros_at(torch.zeros([1] * rank, dtype=torch.bool, device=device))


def _small(tensor: Tensor) -> Tensor:
    for dim, size in enumerate(tensor.shape):
        first = tensor.narrow(dim, 0, 1) if size else tensor
        if size > 1 and bool((tensor == first).all()):
            tensor = first
    return tensor

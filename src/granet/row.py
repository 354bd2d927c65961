"""Tensors that lie one after another in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import overload

import torch
from torch import Tensor


class Row(Sequence[Tensor]):
    """A flat tensor as the tensors it is made of, in the shapes and layouts of others.

    To cut it apart keeps the host busy for long, if there are many. So it is not done before one of them is looked at.
    """

    def __init__(self, whole: Tensor, like: Sequence[Tensor]) -> None:
        self.whole, self._like = whole, like

    def __len__(self) -> int:
        return len(self._like)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | Sequence[Tensor]:
        return self._parts[index]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._parts)

    @property
    def device(self) -> torch.device:
        return self.whole.device

    def clone(self) -> Row:
        return Row(self.whole.clone(), self._like)

    def addresses(self) -> list[int]:
        """Where the tensors begin in memory."""
        starts = accumulate(map(Tensor.numel, self._like[:-1]), initial=0)
        first, size = self.whole.data_ptr(), self.whole.element_size()
        return [first + size * start for start in starts]

    @cached_property
    def _parts(self) -> list[Tensor]:
        parts = torch.split(self.whole, list(map(Tensor.numel, self._like)))
        return [
            part.view_as(like) if like.is_contiguous() else part.as_strided(like.shape, like.stride())
            for part, like in zip(parts, self._like, strict=True)
        ]


def row_of(tensors: Sequence[Tensor]) -> Row | None:
    """The tensors as the row that they lie in; None if they do not lie one after another."""
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        together = tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (together and tensor.is_contiguous() and tensor.data_ptr() == end):
            return None
        end += tensor.nbytes
    return Row(first.as_strided((sum(map(Tensor.numel, tensors)),), (1,)), tensors)

"""Many tensors as slices of one, and what is asked about many at once: devices, dtypes, sizes, zeros, addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, product
from typing import overload

import torch
from torch import Tensor


class Row(Sequence[Tensor]):
    """Tensors that lie one after another in a flat one, ``whole``; each has the shape and layout of one in ``like``.

    Cutting ``whole`` into hundreds of tensors keeps the host busy, so it is put off until one of them is read. Code
    that works on ``whole`` never pays for it.
    """

    def __init__(self, whole: Tensor, like: Sequence[Tensor]) -> None:
        self.whole, self.like = whole, like

    def __len__(self) -> int:
        return len(self.like)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | Sequence[Tensor]:
        return self._parts[index]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._parts)

    def clone(self) -> Row:
        return Row(self.whole.clone(), self.like)

    @cached_property
    def _parts(self) -> list[Tensor]:
        parts = torch.split(self.whole, list(sizes(self)))
        return [
            part.view_as(like) if like.is_contiguous() else part.as_strided(like.shape, like.stride())
            for part, like in zip(parts, self.like, strict=True)
        ]


def first_device(tensors: Sequence[Tensor]) -> torch.device:
    """Where the first of them is."""
    return (tensors.whole if isinstance(tensors, Row) else tensors[0]).device


def kinds(tensors: Sequence[Tensor]) -> set[tuple[torch.device, torch.dtype]]:
    """The different pairs of device and dtype."""
    if isinstance(tensors, Row):
        return {(tensors.whole.device, tensors.whole.dtype)}
    found = set(product({tensor.device for tensor in tensors}, dtypes(tensors)))
    # Mostly all tensors are alike; checking that without a pair for each of them takes half the time.
    return found if len(found) == 1 else {(tensor.device, tensor.dtype) for tensor in tensors}


def dtypes(tensors: Sequence[Tensor]) -> set[torch.dtype]:
    """The different dtypes."""
    return {tensor.dtype for tensor in ((tensors.whole,) if isinstance(tensors, Row) else tensors)}


def sizes(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """How many elements each of them has."""
    return tuple(map(Tensor.numel, tensors.like if isinstance(tensors, Row) else tensors))


def nonzero(tensors: Iterable[Tensor], device: torch.device) -> Tensor:
    """How many elements of each are not zero, as one int64 tensor on the device; no host wait."""
    return torch.stack([tensor.count_nonzero().to(device) for tensor in tensors])


def contiguous(tensors: Sequence[Tensor]) -> bool:
    """Whether each of them lies in memory in its logical order."""
    return all(map(Tensor.is_contiguous, tensors.like if isinstance(tensors, Row) else tensors))


def addresses(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Where each of them begins in memory."""
    if not isinstance(tensors, Row):
        return tuple(map(Tensor.data_ptr, tensors))
    first, size = tensors.whole.data_ptr(), tensors.whole.element_size()
    return tuple(first + size * start for start in accumulate(sizes(tensors)[:-1], initial=0))


def row_of(tensors: Sequence[Tensor]) -> Row | None:
    """The tensors as the row that they lie in; None if they do not lie one after another."""
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        together = tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        alike = tensor.dtype == first.dtype and tensor.is_contiguous()
        if not (together and alike and tensor.data_ptr() == end):
            return None
        end += tensor.nbytes
    return Row(first.as_strided((sum(map(Tensor.numel, tensors)),), (1,)), tensors)

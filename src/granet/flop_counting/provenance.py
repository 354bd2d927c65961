"""Where the operands of a forward pass come from: the input, a parameter, or neither.

A tensor is recognised by its storage, so a view of a weight (transposed, a slice of a packed projection) is still that
weight, and its part of the mask is found by the same sizes and strides. A tensor made only of parameters, with a
parameter's shape (a cast, a parametrization, a reordered copy), counts as that parameter. Anything computed from the
input is data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy

from granet.given_masks import check_masks
from granet.names import plain_name


@dataclass(frozen=True)
class Weight:
    """An operand that is a weight, as one product uses it."""

    parameter: str | None
    """Its name, or None for a weight that is put together from several parameters."""
    shape: tuple[int, ...]
    """Shape of the parameter."""
    size: int
    """Elements of the parameter."""
    total: int
    """Active elements of the parameter."""
    used: int
    """Elements that this use reads; a repetition without a copy (`expand`) counts once."""
    active: int
    """Active elements among them."""
    masked: bool = False
    """A mask was given for it."""
    buffer: bool = False
    """It is a buffer of the model, not a parameter."""


@dataclass(frozen=True)
class _Region:
    """A part of a storage that holds a parameter, or a tensor that counts as one."""

    parameter: str
    offset: int
    extent: int
    itemsize: int
    mask: Tensor | None
    """In the shape and strides of the tensor there; None if every element is active."""
    original: bool
    """The storage is the parameter's own."""

    def holds(self, tensor: Tensor) -> bool:
        start, end = tensor.storage_offset(), tensor.storage_offset() + _extent(tensor)
        same_units = tensor.dtype.itemsize == self.itemsize
        return same_units and self.offset <= start and end <= self.offset + self.extent

    def mask_of(self, view: Tensor) -> Tensor | None:
        """The part of the mask that belongs to a view of this region."""
        if self.mask is None:
            return None
        offset = self.mask.storage_offset() + view.storage_offset() - self.offset
        return self.mask.as_strided(view.shape, view.stride(), offset)


@dataclass
class _Storage:
    alive: StorageWeakRef  # while it is held, no other storage gets the same address
    data: bool = False
    assembled: bool = False
    """Made of parameters alone, in another shape than theirs."""
    regions: list[_Region] = field(default_factory=list)


class Provenance:
    """Follows parameters and data through the operators of one forward pass."""

    def __init__(self, model: nn.Module, masks: Mapping[str, Tensor] | None) -> None:
        """`masks=None`: elements that are not zero are active. Otherwise a parameter without a mask is all active."""
        self._by_value = masks is None
        self._masks = _masks_by_first_name(model, {} if masks is None else masks)
        self._storages: dict[int, _Storage] = {}
        self._tensors: dict[str, Tensor] = {}
        self._totals: dict[str, int] = {}
        self._buffers = {plain_name(name) for name, _ in model.named_buffers(remove_duplicate=False)}
        self.aliases: dict[str, list[str]] = {}
        """All names of each parameter and buffer, by the first of them."""
        first: dict[int, str] = {}
        for named in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
            for raw, tensor in named:
                name = plain_name(raw)
                if id(tensor) not in first and _has_storage(tensor):
                    self._tensors[name] = tensor
                    self._add_region(name, tensor, _laid_out(self._masks.get(name), tensor), original=True)
                self.aliases.setdefault(first.setdefault(id(tensor), name), []).append(name)

    def mark_data(self, tensors: Iterable[Tensor]) -> None:
        """These hold the input, or what was computed from it."""
        for tensor in tensors:
            if _has_storage(tensor):
                self._storage(tensor).data = True

    def is_data(self, tensors: Iterable[Tensor]) -> bool:
        """Whether any of these does."""
        return any(self._known_storage(tensor).data for tensor in tensors)

    def follow(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], written: Sequence[Tensor]) -> None:
        """An operator that is no product made `outputs` from `inputs`, and wrote to some of these."""
        if self.is_data(inputs):
            self.mark_data([*outputs, *written])
            return
        sources = [(tensor, region) for tensor in inputs if (region := self._region(tensor)) is not None]
        assembled = any(self._known_storage(tensor).assembled for tensor in inputs)
        for output in outputs:
            if not _has_storage(output) or self._region(output) is not None:
                continue  # a view: its storage is known
            alike = [(tensor, region) for tensor, region in sources if tensor.shape == output.shape]
            if alike:  # of several with that shape, one with a mask; a parameter rather than a buffer
                source, region = min(alike, key=lambda pair: (pair[1].mask is None, pair[1].parameter in self._buffers))
                self._add_region(region.parameter, output, _laid_out(region.mask_of(source), output), original=False)
            elif sources or assembled:
                self._storage(output).assembled = True

    def weight(self, operand: Tensor | None) -> Weight | None:
        """What is known of the operand as a weight, or None if it is not one."""
        if operand is None or self.is_data([operand]):
            return None
        region = self._region(operand)
        if region is None:
            return self._assembled_weight(operand)
        once = _without_repetition(operand)
        parameter = self._tensors[region.parameter]
        whole = once.numel() == parameter.numel()
        if not self._by_value:
            active = _nonzero(mask) if (mask := region.mask_of(once)) is not None else once.numel()
        elif region.original and whole:
            active = self._total(region.parameter)
        else:
            active = _nonzero(once)
        total = active if whole else self._total(region.parameter)
        shape, masked = tuple(parameter.shape), region.parameter in self._masks
        buffer = region.parameter in self._buffers
        return Weight(region.parameter, shape, parameter.numel(), total, once.numel(), active, masked, buffer)

    def _assembled_weight(self, operand: Tensor) -> Weight | None:
        """A weight without a parameter's name. It has no known mask, so its nonzero values are the active ones."""
        once = _without_repetition(operand)
        if not _has_storage(operand):  # a sparse layout stores what is active
            active = operand._nnz() if operand.layout is torch.sparse_coo else operand.values().numel()
        elif self._known_storage(operand).assembled:
            active = _nonzero(once)
        else:
            return None
        return Weight(None, tuple(operand.shape), once.numel(), active, once.numel(), active)

    def _total(self, name: str) -> int:
        """Active elements of the whole parameter."""
        if name not in self._totals:
            tensor, mask = self._tensors[name], self._masks.get(name)
            if self._by_value:
                self._totals[name] = _nonzero(tensor)
            else:
                self._totals[name] = tensor.numel() if mask is None else _nonzero(mask)
        return self._totals[name]

    def _add_region(self, name: str, tensor: Tensor, mask: Tensor | None, original: bool) -> None:
        place = int(tensor.storage_offset()), _extent(tensor), tensor.dtype.itemsize
        self._storage(tensor).regions.append(_Region(name, *place, mask, original))

    def _storage(self, tensor: Tensor) -> _Storage:
        storage = tensor.untyped_storage()
        return self._storages.setdefault(storage._cdata, _Storage(StorageWeakRef(storage)))  # type: ignore[no-untyped-call]

    def _known_storage(self, tensor: Tensor) -> _Storage:
        known = self._storages.get(tensor.untyped_storage()._cdata) if _has_storage(tensor) else None
        return known or _NOTHING

    def _region(self, tensor: Tensor) -> _Region | None:
        known = self._known_storage(tensor)
        return None if known.data else next((region for region in known.regions if region.holds(tensor)), None)


_NOTHING = _Storage(alive=None)  # type: ignore[arg-type]


def _masks_by_first_name(model: nn.Module, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The masks by the first name of each parameter; ValueError if one is not of this model."""
    parameters = {plain_name(name): parameter for name, parameter in model.named_parameters(remove_duplicate=False)}
    first = {id(parameter): name for name, parameter in reversed(parameters.items())}
    firsts = {name: first[id(parameter)] for name, parameter in parameters.items()}
    return {name: mask for _, name, mask in check_masks(masks, parameters, firsts)}


def _has_storage(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not is_lazy(tensor)


def _extent(tensor: Tensor) -> int:
    """Elements of the storage from the tensor's first to its last."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _without_repetition(tensor: Tensor) -> Tensor:
    """The tensor without the copies that `expand` shows."""
    if tensor.layout is not torch.strided:
        return tensor
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def _laid_out(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """The mask with the strides of `like`, so that views of that tensor can be found in it."""
    if mask is None or mask.stride() == like.stride():
        return mask
    return torch.empty_strided(like.shape, like.stride(), dtype=mask.dtype, device=mask.device).copy_(mask)


def _nonzero(tensor: Tensor) -> int:
    """Elements that are not zero; without values, all."""
    return tensor.numel() if tensor.is_meta else int(torch.count_nonzero(tensor))

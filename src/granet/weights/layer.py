"""One sparse weight: its parameter, its mask and what a method knows about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from granet.tensors.row import Row, kinds, nonzero, sizes
from granet.weights.identity import WeightId
from granet.weights.orientation import ROWS_FIRST, Orientation


class Masked(Protocol):
    """A parameter that is zero where its mask is False: a sparse layer, or what follows one."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> nn.Parameter: ...

    @property
    def mask(self) -> Tensor:
        """Bool, in the shape and memory layout of the weight. Its storage never moves."""


@dataclass(eq=False)
class SparseLayer:
    """One sparse weight: what it is, and where its parameter, its mask and its gradient are."""

    identity: WeightId
    weight: nn.Parameter = field(repr=False)
    mask: Tensor = field(init=False, repr=False)
    """Bool, in the shape and memory layout of the weight; True where the weight is active. Its storage never moves."""
    _kept: tuple[Sequence[Tensor], int] | None = field(default=None, init=False, repr=False)
    """Where ``gradient`` is: a sequence of tensors and an index. A `Row` is not cut up until it is read."""
    _refusal: str = field(default="", init=False, repr=False)
    """Why ``gradient`` must not be read now, if it must not."""
    rate: float | Tensor = field(default=0.0, init=False, repr=False)
    """The learning rate of the step before a mask update, for methods that move weights themselves."""
    memory: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    """What the method keeps between updates about each weight."""
    hidden: Tensor | None = field(default=None, init=False, repr=False)
    """What a method keeps behind the weight: its dense values, or the log variance of its noise."""

    def __post_init__(self) -> None:
        self.mask = torch.ones_like(self.weight, dtype=torch.bool, requires_grad=False)

    @classmethod
    def of(
        cls, name: str, weight: nn.Parameter, index: int = 0, seed: int = 0, orientation: Orientation = ROWS_FIRST
    ) -> SparseLayer:
        """A layer that stores the whole weight."""
        return cls(WeightId(name, index, seed, tuple(weight.shape), orientation), weight)

    def __getstate__(self) -> dict[str, Any]:
        """With a copy of the mask, which is a slice of one tensor for all layers: pickling would write all of that.

        Without the gradient of an unfinished step, since copies of parameters have no ``.grad`` either.
        """
        return self.__dict__ | {"mask": self.mask.clone(), "_kept": None}

    @property
    def gradient(self) -> Tensor | None:
        """The gradient that a mask update reads, kept from the backward pass; for growth, as it was before masking."""
        if self._refusal:
            raise ValueError(f"{self.name}: {self._refusal}")
        return None if self._kept is None else self._kept[0][self._kept[1]]

    @gradient.setter
    def gradient(self, gradient: Tensor | None) -> None:
        self._kept = None if gradient is None else ((gradient,), 0)

    @property
    def has_gradient(self) -> bool:
        return self._kept is not None

    def keep_gradient(self, tensors: Sequence[Tensor], place: int) -> None:
        """Let ``gradient`` be ``tensors[place]``, which is looked up only when it is read."""
        self._kept = tensors, place

    @contextmanager
    def gradient_refused(self, reason: str) -> Iterator[None]:
        """In this context, reading ``gradient`` raises a ValueError that names the layer and gives the reason."""
        self._refusal = reason
        try:
            yield
        finally:
            self._refusal = ""

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def index(self) -> int:
        return self.identity.index

    @property
    def seed(self) -> int:
        return self.identity.seed

    @property
    def numel(self) -> int:
        """The number of weights as a whole."""
        return self.identity.numel

    def neurons(self, tensor: Tensor) -> Tensor:
        """A tensor in the shape of the weight as [out, in, kernel ...], whatever way the weight is stored."""
        return self.identity.orientation.neurons(tensor)

    def stored(self, neurons: Tensor) -> Tensor:
        """The inverse of :meth:`neurons`."""
        return self.identity.orientation.stored(neurons, self.identity.shape)

    @property
    def active(self) -> int:
        return int(self.mask.count_nonzero())

    @property
    def sparsity(self) -> float:
        return (self.numel - self.active) / self.numel


def gradients_of(layers: Sequence[SparseLayer]) -> Sequence[Tensor]:
    """The ``gradient`` of each layer; all must have one. Kept together as one sequence, they are returned as that."""
    kept = [layer._kept for layer in layers]
    tensors = kept[0][0] if kept[0] is not None else ()
    if len(tensors) == len(layers) and all(one and one[0] is tensors and one[1] == i for i, one in enumerate(kept)):
        return tensors
    return [one[0][one[1]] for one in kept if one is not None]


def count_active(masks: Mapping[str, Tensor]) -> dict[str, int]:
    """Name to the number of True in each mask; waits for the device once."""
    counts = nonzero(masks.values(), next(iter(masks.values())).device)
    return dict(zip(masks, counts.tolist(), strict=True))


def lay_in_a_row(layers: Sequence[SparseLayer]) -> None:
    """Make the masks slices of one tensor, if they are on one device.

    One call can then copy them all, as long as each is stored in its logical order.
    """
    masks = [layer.mask for layer in layers]
    if len(kinds(masks)) == 1:
        whole = torch.empty(sum(sizes(masks)), dtype=torch.bool, device=masks[0].device)
        for layer, mask in zip(layers, Row(whole, masks), strict=True):
            layer.mask = mask.copy_(layer.mask)

"""How a weight lies: which of its dimensions are outputs, inputs, and whole matrices side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Shape = Sequence[int]


@dataclass(frozen=True)
class Orientation:
    """Which dimension of a weight is what; those that are not named are the kernel's.

    Patterns and distributions look at a weight through it, as output neurons: [out, in, kernel ...].

    >>> Orientation(out=1, inputs=0).neuron_shape((3, 8))  # of a layer that multiplies by x @ weight
    (8, 3)
    >>> Orientation(experts=0, out=2, inputs=1).neuron_shape((4, 3, 8))
    (32, 3)
    """

    out: int = 0
    inputs: int = 1
    experts: int | None = None
    """The dimension along which whole matrices are stacked, if there is one."""
    groups: int = 1
    """A convolution's groups: parts of ``out`` or ``inputs``, whichever comes first."""
    parts: int = 1
    """How many matrices lie one after another along ``out``, as those of query, key and value may."""

    def misfit(self, shape: Shape) -> str | None:
        """Why a weight of that shape cannot lie like this, if so."""
        named = {"out": self.out, "inputs": self.inputs, "experts": self.experts}
        axes = {name: axis for name, axis in named.items() if axis is not None}
        said = ", ".join(f"{name}={axis}" for name, axis in axes.items())
        if not all(0 <= axis < len(shape) for axis in axes.values()) or len(set(axes.values())) < len(axes):
            return f"{said} must be different dimensions from 0 to {len(shape) - 1}"
        for name, count, axis in (
            ("groups", self.groups, min(self.out, self.inputs)),
            ("parts", self.parts, self.out),
        ):
            if count < 1 or shape[axis] % count:
                return f"{name}={count} must divide the {shape[axis]} of dimension {axis}"
        return None

    def neurons(self, tensor: Tensor) -> Tensor:
        """[out, in, kernel ...]: the neurons of all matrices one after another."""
        if self._rows_first:
            return tensor
        if self.experts is not None:
            return tensor.movedim((self.experts, self.out, self.inputs), (0, 1, 2)).flatten(0, 1)
        if self.out < self.inputs:
            return tensor.movedim((self.out, self.inputs), (0, 1))
        by_group = torch.unflatten(tensor, self.inputs, (self.groups, -1))
        return by_group.movedim((self.inputs, self.out + 1, self.inputs + 1), (0, 1, 2)).flatten(0, 1)

    def stored(self, neurons: Tensor, shape: Shape) -> Tensor:
        """The inverse of :meth:`neurons`, for a weight of that shape."""
        if self._rows_first:
            return neurons
        if self.experts is None and self.out < self.inputs:
            return neurons.movedim((0, 1), (self.out, self.inputs))
        blocks = torch.unflatten(neurons, 0, (-1, shape[self.out]))
        if self.experts is not None:
            return blocks.movedim((0, 1, 2), (self.experts, self.out, self.inputs))
        by_group = blocks.movedim((0, 1, 2), (self.inputs, self.out + 1, self.inputs + 1))
        return by_group.flatten(self.inputs, self.inputs + 1)

    def neuron_shape(self, shape: Shape) -> tuple[int, ...]:
        """The shape of what :meth:`neurons` returns."""
        if self._rows_first:
            return tuple(shape)
        kernel = (size for axis, size in enumerate(shape) if axis not in (self.out, self.inputs, self.experts))
        out, inputs = shape[self.out], shape[self.inputs]
        if self.experts is not None:
            return (shape[self.experts] * out, inputs, *kernel)
        groups = self.groups if self.inputs < self.out else 1
        return (groups * out, inputs // groups, *kernel)

    def matrices(self, shape: Shape) -> tuple[int, tuple[int, ...]]:
        """How many matrices a weight of that shape is made of, and the shape [out, in, kernel ...] of each."""
        count = self.parts * (1 if self.experts is None else shape[self.experts])
        rows, *columns = self.neuron_shape(shape)
        return count, (rows // count, *columns)

    @property
    def _rows_first(self) -> bool:
        return (self.out, self.inputs, self.experts) == (0, 1, None)


ROWS_FIRST = Orientation()
"""[out, in, kernel ...], as linear layers and convolutions are stored."""

"""What is found of the channels of a model: the label of every one, and who reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor, fx

from granet.channels.labels import Axes, Axis, Labels
from granet.channels.products import Product


@dataclass(frozen=True)
class Read:
    """A product that reads channels, and adds them up."""

    product: Product
    inputs: Axis
    """The label of each input; None where they cannot be cut, as those of an image."""
    outputs: Axis


@dataclass(frozen=True)
class Shaped:
    """An operator whose sizes may be written in the forward of a module: another size may need another number there."""

    owner: str
    axes: Axes
    shape: tuple[int, ...]


@dataclass
class Coupling:
    """The labels of every tensor of a model."""

    labels: Labels = field(default_factory=Labels)
    tensors: dict[str, Axes] = field(default_factory=dict)
    """Of parameters and buffers."""
    nodes: dict[fx.Node, Axes | tuple[Axes, ...]] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    shaped: list[Shaped] = field(default_factory=list)

    def every_axis(self) -> Iterator[Tensor]:
        """The labels of every dimension of every tensor."""
        for axes in (*self.tensors.values(), *self.nodes.values()):
            for axis in axes:
                if isinstance(axis, Tensor):
                    yield axis
                elif axis is not None:
                    yield from (each for each in axis if each is not None)

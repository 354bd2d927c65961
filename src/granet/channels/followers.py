"""What else becomes zero where a filter is dropped: its bias, what a batch norm adds, and the weights that read it.

A batch norm that sees zeros outputs its bias, less its running mean when it evaluates. Both are held at zero for
dropped filters; the norm's factor then multiplies zero and may stay. Weights of later layers that read such a silent
channel have no effect and no gradient; they are held at zero too, so that they are neither stored nor counted.

A filter that outputs exactly zero into a ReLU gets no gradient, for the slope of a ReLU is 0 there: growth would not
see it, and once grown from zero it would never move. So as long as filters may grow back, their biases are left alone
and a dropped filter outputs a constant; from the last mask update on (or ``finish()``, where weights are hidden) it
outputs zero. Biases that are zero, as a batch norm's are at first, do not help: filters that a random start leaves out
hardly ever come to life.

The weights that read silent channels wait for the last mask update in any case. They are part of filters that a method
may still compare, and filters behind a thinned layer must not look small because of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from granet.channels.silence import Flow
from granet.masking import zero_inactive
from granet.patterns import FILTERS
from granet.weights import Masked, SparseLayer

Held = Literal["layers", "outputs", "readers"]
"""How much is held at zero: only the inactive weights of the layers; also what else dropped filters would output, so
that they are silent; also the weights that read silent channels."""


@dataclass(eq=False)
class Follower:
    """A parameter whose mask no method chooses: it follows from the masks of layers."""

    name: str
    weight: nn.Parameter
    mask: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.mask = torch.ones_like(self.weight, dtype=torch.bool, requires_grad=False)


@dataclass(eq=False)
class Reader:
    """A convolution or linear layer whose input channels may be silent."""

    module: nn.Module
    held: Follower
    """Its weight with a second mask, which is also False where the weight reads silent channels."""
    layer: SparseLayer | None
    """Its weight as one of the sparse layers, if it is one."""

    def mask_columns(self, silent: Tensor) -> None:
        """Hold at zero what reads those input channels; a filter of a group reads the channels of that group alone."""
        mask = self.held.mask
        kernel = [1] * (mask.ndim - 2)
        if getattr(self.module, "transposed", False):
            columns = silent.view(-1, 1, *kernel)
        else:
            groups = silent.view(getattr(self.module, "groups", 1), 1, -1)
            columns = groups.expand(-1, len(mask) // len(groups), -1).reshape(len(mask), -1, *kernel)
        mask.logical_and_(~columns.to(mask.device))


@dataclass(eq=False)
class Followers:
    """Parameters that are zero because filters are dropped, with masks of their own besides those of the layers.

    Under other patterns there are none, and it is false.
    """

    layers: Sequence[SparseLayer]
    leaders: dict[str, SparseLayer] = field(default_factory=dict)
    """Module to the layer whose dropped filters it outputs zero for: its own, or the one in front of a batch norm."""
    biases: list[tuple[SparseLayer, Follower]] = field(default_factory=list)
    """A layer, and a bias of its module or of the batch norm behind it."""
    norms: list[tuple[SparseLayer, _BatchNorm]] = field(default_factory=list)
    readers: dict[str, Reader] = field(default_factory=dict)
    flow: Flow = field(default_factory=Flow)
    loose: list[str] = field(default_factory=list)
    """Biases that another optimizer trains: they cannot be held at zero, so what they are added to is not silent."""
    silent: bool = False
    """Whether dropped filters output zero."""

    def __bool__(self) -> bool:
        return bool(self.biases or self.norms or self.readers)

    @property
    def held(self) -> list[Masked]:
        """All parameters with zeros to hold, the layers among them, each once."""
        readers = {id(reader.held.weight): reader.held for reader in self.readers.values()}
        layers: list[Masked] = [readers.pop(id(layer.weight), layer) for layer in self.layers]
        return [*layers, *readers.values(), *(bias for _, bias in self.biases)]

    def hold(self, what: Held) -> None:
        """Hold that at zero and nothing else: derive all masks from those of the layers, which may be new.

        Zeros are not written.
        """
        self.silent = what != "layers"
        for filters, bias in self.biases:
            if self.silent:
                bias.mask.copy_(filters_left(filters).view_as(bias.mask))
            else:
                bias.mask.fill_(True)
        for reader in self.readers.values():
            if reader.layer is None:
                reader.held.mask.fill_(True)
        self.copy_layer_masks()
        if what == "readers":
            self._mask_readers()

    def copy_layer_masks(self) -> None:
        """Give readers that are sparse layers themselves the masks of those layers.

        It is enough in place of ``hold("layers")`` as long as nothing besides the layers is held.
        """
        pairs = [(reader.held.mask, reader.layer.mask) for reader in self.readers.values() if reader.layer is not None]
        if pairs:
            torch._foreach_copy_([held for held, _ in pairs], [mask for _, mask in pairs])

    def _mask_readers(self) -> None:
        """Mask the weights that read silent channels."""
        dropped = {name: ~filters_left(filters) for name, filters in self.leaders.items()}
        silent = self.flow.silent_inputs(dropped, self.layers[0].mask.device)
        for name, reader in self.readers.items():
            reader.mask_columns(silent[name])

    def zero_means(self) -> None:
        """Zero the running means of silent filters, from before they were dropped or from the middle of a step.

        They have no masks in :attr:`held`, so this goes with every writing of zeros there.
        """
        if self.silent:
            zero_inactive(
                (norm.running_mean, filters_left(filters))
                for filters, norm in self.norms
                if norm.running_mean is not None
            )


def filters_left(filters: SparseLayer) -> Tensor:
    """Which filters are active."""
    return FILTERS.units(filters, filters.mask)

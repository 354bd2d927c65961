"""Dense weights behind masked ones: a weight that is switched off is kept, and can return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from granet.clock import Clock
from granet.hidden.base import Hidden
from granet.masking import zero_inactive
from granet.weights import SparseLayer


class HiddenWeights(Hidden):
    """Trains ``layer.hidden`` and shows it masked: w = m * hidden. The optimizer's state stays dense.

    Subclasses say what gradient the hidden weights get. Writing to the model's weights between steps (loading a
    checkpoint, say) changes the hidden ones too, where the new values differ from those shown. Writes through ``.data``
    go unnoticed, because torch does not count them in a tensor's version.
    """

    def __init__(self, layers: Sequence[SparseLayer]) -> None:
        super().__init__(layers)
        for layer in self.layers:
            layer.hidden = layer.weight.detach().clone()
        self._shown()

    @torch.no_grad()
    def prepare(self, clock: Clock) -> None:
        for layer, version in zip(self.layers, self._versions, strict=True):
            if layer.weight._version != version:  # written to since it was shown; counted on the host
                kept = hidden_of(layer)
                kept.copy_(torch.where(self.unchanged(layer), kept, self.invisible(layer)))
        self._shown()

    @torch.no_grad()
    def _enter(self) -> None:
        torch._foreach_copy_(self._weights(), [hidden_of(layer) for layer in self.layers])

    def _leave(self) -> None:
        self.store()
        self.show()

    @torch.no_grad()
    def store(self) -> None:
        """Copy what the optimizer made of the hidden weights back into them."""
        torch._foreach_copy_([hidden_of(layer) for layer in self.layers], self._weights())

    @torch.no_grad()
    def show(self) -> None:
        torch._foreach_copy_(self._weights(), [hidden_of(layer) for layer in self.layers])
        zero_inactive((layer.weight, layer.mask) for layer in self.layers)
        self._shown()

    def visible(self, layer: SparseLayer) -> Tensor:
        """What the model shows of the hidden weight."""
        return torch.where(layer.mask, hidden_of(layer), 0.0)

    def unchanged(self, layer: SparseLayer) -> Tensor:
        """Where the weight is what the model showed."""
        return layer.weight.detach() == self.visible(layer)

    def invisible(self, layer: SparseLayer) -> Tensor:
        """A hidden weight for which the model would show its present weight."""
        return layer.weight.detach()

    def finish(self) -> None:
        for layer in self.layers:
            layer.hidden = None

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        return {"weights": {layer.name: hidden_of(layer) for layer in self.layers}}

    @torch.no_grad()
    def load(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        super().load(state)
        self.show()

    def _weights(self) -> list[Tensor]:
        return [layer.weight.detach() for layer in self.layers]

    def _shown(self) -> None:
        self._versions = [layer.weight._version for layer in self.layers]


class FrozenWeights(HiddenWeights):
    """A hidden weight is not trained while it is switched off: neither gradient nor momentum nor decay move it."""

    def pull_back(self) -> None:
        zero_inactive((layer.weight.grad, layer.mask) for layer in self.layers if layer.weight.grad is not None)

    @torch.no_grad()
    def store(self) -> None:
        for layer in self.layers:
            kept = hidden_of(layer)
            kept.copy_(torch.where(layer.mask, layer.weight, kept))


class FedBackWeights(HiddenWeights):
    """The gradient at the masked weights is applied to all dense weights as it is: hidden ones are trained on."""

    def pull_back(self) -> None:
        """g, not m * g: the error feedback of DPF."""


def hidden_of(layer: SparseLayer) -> Tensor:
    assert layer.hidden is not None
    return layer.hidden

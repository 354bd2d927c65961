"""Soft thresholds that are learned, one for each layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from granet.clock import Clock
from granet.hidden.extras import ExtraParameters
from granet.hidden.weights import HiddenWeights, hidden_of
from granet.masking import zero_inactive
from granet.patterns import SINGLE, Units
from granet.weights import SparseLayer


class SoftThreshold(HiddenWeights):
    r"""Shows S(w, s) = sign(w) relu(|w| - sigmoid(s)) of the hidden w and trains w and s (Kusupati et al., 2020).

    With g the gradient of what is shown and m = [|w| > sigmoid(s)], the mask, the gradients of what is trained are

    .. math:: \frac{dL}{dw} = m g, \qquad \frac{dL}{ds} = -\sigma'(s) \sum_i m_i\, \mathrm{sign}(w_i)\, g_i

    s is trained by the same optimizer with the options of the weight's group, except for the weight decay if ``decay``
    is not None: it pulls s from ``s_init`` far below zero up towards zero, and with it the threshold.

    Larger units have the soft threshold of :meth:`Units.shrink`. With their size r and direction d = w / r in place of
    \|w\| and sign(w) the above holds, but for

    .. math:: \frac{dL}{dw} = m \left( \left(1 - \frac{\sigma(s)}{r}\right) g
        + \frac{\sigma(s)}{r} \, d \, \mathrm{mean}(d g) \right)

    with the mean over the unit.
    """

    def __init__(
        self, layers: Sequence[SparseLayer], optimizer: Optimizer, s_init: float, units: Units, decay: float | None
    ) -> None:
        super().__init__(layers)
        self._units = units
        self._s = [nn.Parameter(self._value(layer).fill_(s_init)) for layer in self.layers]
        held = {} if decay is None else {"weight_decay": decay}
        self._extras = ExtraParameters(optimizer, [layer.weight for layer in self.layers], self._s, **held)

    @torch.no_grad()
    def pull_back(self) -> None:
        zero_inactive((layer.weight.grad, layer.mask) for layer in self.layers if layer.weight.grad is not None)

    def prepare(self, clock: Clock) -> None:
        super().prepare(clock)
        self._extras.follow()

    @torch.no_grad()
    def _enter(self) -> None:
        super()._enter()
        self._pull_back_to_thresholds()
        self._extras.rest_with_weights()
        if self._units != SINGLE:
            self._through_units()

    def _pull_back_to_thresholds(self) -> None:
        """dL/ds. Not in :meth:`pull_back`: if the step is then given up, nobody clears it."""
        trained = [(layer, layer.weight.grad) for layer in self.layers if layer.weight.grad is not None]
        layers, gradients = [layer for layer, _ in trained], [gradient for _, gradient in trained]
        own, kept = [self._s[layer.index] for layer in layers], [hidden_of(layer) for layer in layers]
        slopes = self.fuse(_threshold_slopes)(self._units, layers, gradients, kept, [s.detach() for s in own])
        for s, slope in zip(own, slopes, strict=True):
            s.grad = slope

    def _through_units(self) -> None:
        """The rest of dL/dw. Not in :meth:`pull_back`, because it is not idempotent."""
        for layer in self.layers:
            gradient, kept = layer.weight.grad, hidden_of(layer)
            if gradient is not None:
                along = self._units.direction(layer, kept)
                along = along * self._units.mean(layer, along * gradient)
                share = self._threshold(layer) / self._units.size(layer, kept)
                gradient.copy_(torch.where(layer.mask, torch.lerp(gradient, along, share), 0.0))

    def _leave(self) -> None:
        super()._leave()
        for s in self._s:
            s.grad = None  # made for this step, from the weights' gradient, which the user clears

    @torch.no_grad()
    def show(self) -> None:
        masks, kept = [layer.mask for layer in self.layers], [hidden_of(layer) for layer in self.layers]
        thresholds = [self._threshold(layer) for layer in self.layers]
        # Compiled or not, the result must be the same to the bit, since a resumed run does both. Larger units round
        # differently.
        show = self.fuse(_show) if self._units == SINGLE else _show
        show(self._units, self.layers, self._weights(), masks, kept, thresholds)
        self._shown()

    def visible(self, layer: SparseLayer) -> Tensor:
        return self._units.shrink(layer, hidden_of(layer), self._threshold(layer))

    def unchanged(self, layer: SparseLayer) -> Tensor:
        return self._units.mean(layer, (~super().unchanged(layer)).float()) == 0

    def invisible(self, layer: SparseLayer) -> Tensor:
        weight = layer.weight.detach()
        return weight + self._units.direction(layer, weight) * self._threshold(layer)

    def finish(self) -> None:
        super().finish()
        self._extras.release()

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        s = {layer.name: s.detach() for layer, s in zip(self.layers, self._s, strict=True)}
        return super().tensors() | {"s": s}

    def _threshold(self, layer: SparseLayer) -> Tensor:
        return self._s[layer.index].detach().sigmoid().to(layer.weight.dtype)

    @staticmethod
    def _value(layer: SparseLayer) -> Tensor:
        """Room for s, in single precision or better, since its gradient is a sum over a layer.

        A matrix, since some optimizers take no scalars (Muon).
        """
        dtype = torch.promote_types(layer.weight.dtype, torch.float32)
        return torch.empty(1, 1, dtype=dtype, device=layer.weight.device)


def _threshold_slopes(
    units: Units, layers: list[SparseLayer], gradients: list[Tensor], kept: list[Tensor], s: list[Tensor]
) -> list[Tensor]:
    """dL/ds of each layer, from masked gradients."""
    slopes = []
    for layer, gradient, weight, own in zip(layers, gradients, kept, s, strict=True):
        threshold = own.sigmoid()
        total = (gradient * units.direction(layer, weight)).sum(dtype=own.dtype)
        slopes.append(-total * threshold * (1 - threshold))
    return slopes


def _show(
    units: Units,
    layers: list[SparseLayer],
    weights: list[Tensor],
    masks: list[Tensor],
    kept: list[Tensor],
    thresholds: list[Tensor],
) -> None:
    """The weights and masks of the layers, from what is trained."""
    for layer, weight, mask, hidden, threshold in zip(layers, weights, masks, kept, thresholds, strict=True):
        shown = units.shrink(layer, hidden, threshold)
        weight.copy_(shown)
        mask.copy_(units.size(layer, shown) != 0)

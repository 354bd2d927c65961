"""Noise on the outputs of a layer, as weights with that variance would cause it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from granet.masking import check_together
from granet.probe import run_with
from granet.weights import SparseLayer

EPSILON = 1e-8
"""Keeps the square root of the variance smooth, and log alpha finite at a weight of zero."""


class NoisyForward:
    """The forward hook of one module.

    Its output gets the noise of one whose weights are random; in evaluation mode it is that of the active weights.
    """

    def __init__(self, layer: SparseLayer, log_sigma2: nn.Parameter) -> None:
        self._layer, self._log_sigma2 = layer, log_sigma2

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> Tensor:
        check_together(output.device, [self._layer.mask])
        if not module.training:
            weight = module.weight  # not always the layer's: functional_call swaps it
            assert isinstance(weight, Tensor)
            shown = torch.where(self._layer.mask, weight, 0.0)
            return run_with(module, {"weight": shown}, given, named)
        if self._log_sigma2.grad is not None:  # of a step that was given up, if model.zero_grad() cleared the weight's
            grad = self._layer.weight.grad
            self._log_sigma2.grad = None if grad is None else torch.where(grad.any(), self._log_sigma2.grad, 0.0)
        sigma2 = self._log_sigma2.exp().to(self._layer.weight.dtype)
        if given:
            given = given[0].square(), *given[1:]
        else:
            named = named | {"input": named["input"].square()}
        own = isinstance(module, nn.Linear | _ConvNd)  # others may need a bias if they have one
        bias = None if own or not isinstance(module.bias, Tensor) else torch.zeros_like(module.bias)
        variance = run_with(module, {"weight": sigma2, "bias": bias}, given, named)
        deviation = (variance.to(self._log_sigma2.dtype) + EPSILON).sqrt().to(output.dtype)
        return output + deviation * torch.randn_like(output)

    def __reduce__(self) -> tuple[Any, ...]:
        return _NoHook, ()


class _NoHook:
    """What replaces a hook in a copy of the model."""

    def __call__(self, module: nn.Module, given: Any, named: Any, output: Any) -> None:
        return None

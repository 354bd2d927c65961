"""Gaussian noise on the weights, whose variance is learned: sparse variational dropout."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd import Variable
from torch.optim import Optimizer

from granet.clock import Clock
from granet.hidden.base import Hidden
from granet.hidden.extras import ExtraParameters
from granet.hidden.noisy_forward import EPSILON, NoisyForward
from granet.patterns import Units
from granet.weights import SparseLayer, linear_maps

K1, K2, K3 = 0.63576, 1.87320, 1.48695


def log_alpha(weight: Tensor, log_sigma2: Tensor) -> Tensor:
    r""":math:`\log \alpha = \log \sigma^2 - \log \theta^2`: how much of a weight is noise."""
    return log_sigma2.detach() - (weight.detach().to(log_sigma2.dtype).square() + EPSILON).log()


def unit_log_alpha(units: Units, layer: SparseLayer, log_sigma2: Tensor) -> Tensor:
    """The same for a unit: log(sum of sigma^2 / sum of theta^2), repeated at each of its weights."""
    squares = layer.weight.detach().to(log_sigma2.dtype).square() + EPSILON
    return units.log_mean(layer, log_sigma2.detach()) - units.log_mean(layer, squares.log())


def kl(log_alpha: Tensor) -> Tensor:
    r"""The KL divergence from the log-uniform prior, of each weight, approximated (Molchanov et al., 2017).

    .. math:: -KL \approx k_1 \sigma(k_2 + k_3 \log\alpha) - \tfrac12 \log(1 + \alpha^{-1}) - k_1

    >>> [round(float(kl(torch.tensor(x))), 4) for x in (-10.0, 0.0, 3.0, 10.0)]
    [5.6358, 0.4312, 0.0254, 0.0]
    """
    return K1 - K1 * torch.sigmoid(K2 + K3 * log_alpha) + 0.5 * nn.functional.softplus(-log_alpha)


def kl_slope(log_alpha: Tensor) -> Tensor:
    """The derivative of :func:`kl`, never positive: the divergence falls as the noise grows."""
    gate = torch.sigmoid(K2 + K3 * log_alpha)
    return -K1 * K3 * gate * (1 - gate) - 0.5 * torch.sigmoid(-log_alpha)


class VariationalNoise(Hidden):
    r"""Weights :math:`N(\theta, \sigma^2)`: the model's parameters are the means, ``layer.hidden`` is log sigma^2.

    In training mode a forward hook adds to a layer's output the noise that random weights would cause (local
    reparametrisation: out = conv(x, theta) + sqrt(conv(x^2, sigma^2)) * eps). In evaluation mode it computes the
    output without the weights whose log alpha is above the threshold; the masks say which, after every step.

    The weights themselves stay dense until the end. The noise comes from torch's global generator, as dropout's does.

    On several ranks (of the default process group) the gradients of log sigma^2 are averaged at the end of each
    backward pass, so that all ranks find the same overflow, and skip the same steps, as with the weights' gradients.
    """

    shows_zeros = False

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[SparseLayer],
        optimizer: Optimizer,
        log_sigma2: float,
        threshold: float,
        kl_weight: Callable[[Clock], float],
        units: Units,
    ) -> None:
        super().__init__(layers)
        self._units = units
        self._optimizer = optimizer
        self._threshold = threshold
        self._said: set[str] = set()
        self._kl_weight = kl_weight
        self._modules = _modules_of(model, self.layers)
        self._log_sigma2 = [nn.Parameter(_variance(layer).fill_(log_sigma2)) for layer in self.layers]
        kinds = {(variance.device, variance.dtype) for variance in self._log_sigma2}
        self._kl_now = {kind: torch.zeros((), device=kind[0], dtype=kind[1]) for kind in kinds}
        weights = [layer.weight for layer in self.layers]
        self._extras = ExtraParameters(optimizer, weights, self._log_sigma2, weight_decay=0.0)
        self._pairs = list(zip(self.layers, self._log_sigma2, strict=True))
        for layer, variance in self._pairs:
            layer.hidden = variance
        self._backward = -1
        """The backward pass at whose end gradients are averaged."""
        self._handles = self._hook()

    def pull_back(self) -> None:
        """The gradients are those of the means already."""

    def prepare(self, clock: Clock) -> None:
        self._extras.follow()
        for weight_now in self._kl_now.values():
            weight_now.fill_(self._kl_weight(clock))

    @torch.no_grad()
    def _enter(self) -> None:
        """Add the gradient of the weighted KL divergence to that of the loss."""
        self._warn_of_silence()
        scale = getattr(self._optimizer, "grad_scale", None)  # a fused optimizer gets its gradients still scaled
        trained = self._trained()
        weights, variances = [layer.weight.detach() for layer, _ in trained], [v.detach() for _, v in trained]
        gradients, slopes = [layer.weight.grad for layer, _ in trained], [v.grad for _, v in trained]
        now = [self._kl_now[v.device, v.dtype] for v in variances]
        self.fuse(_add_divergence)(weights, variances, gradients, slopes, now, scale)
        self._extras.rest_with_weights()

    def _leave(self) -> None:
        for variance in self._log_sigma2:
            variance.grad = None  # it includes the divergence, and model.zero_grad() would not clear it
        self.show()

    def _warn_of_silence(self) -> None:
        """Warn of layers that train without noise, as when a module reads their weight but never calls them."""
        silent = [layer.name for layer, v in self._pairs if layer.weight.grad is not None and v.grad is None]
        if not self._said.issuperset(silent):
            self._said.update(silent)
            warnings.warn(
                f"granet: method='vd': weights had a gradient but no noise: their modules were not called in training "
                f"mode, or were compiled before; exclude={tuple(silent)!r} leaves them dense",
                stacklevel=2,
            )

    def _trained(self) -> list[tuple[SparseLayer, nn.Parameter]]:
        """Layers that noise went through in this step; the others were not run in training mode."""
        return [(layer, v) for layer, v in self._pairs if layer.weight.grad is not None and v.grad is not None]

    def _average_after_backward(self, variance: Tensor) -> None:
        """Called with the first gradient of a backward pass, and with the others."""
        backward = torch._C._current_graph_task_id()
        if backward != self._backward:
            self._backward = backward
            Variable._execution_engine.queue_callback(self._average)

    @torch.no_grad()
    def _average(self) -> None:
        """Across ranks. Those that did not run a layer which others ran take part with zeros.

        Gradients that several backward passes add up are averaged after each of them, which changes nothing.
        """
        there = [variance.grad is not None for variance in self._log_sigma2]
        anywhere = torch.tensor(there, dtype=torch.int32, device=self._log_sigma2[0].device)
        distributed.all_reduce(anywhere)
        for variance, ranks in zip(self._log_sigma2, anywhere.tolist(), strict=True):
            if ranks:
                if variance.grad is None:
                    variance.grad = torch.zeros_like(variance)
                distributed.all_reduce(variance.grad)
                variance.grad /= distributed.get_world_size()

    @torch.no_grad()
    def show(self) -> None:
        for layer, variance in self._pairs:
            layer.mask.copy_(unit_log_alpha(self._units, layer, variance) <= self._threshold)

    def finish(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._extras.release()
        for layer in self.layers:
            layer.hidden = None

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        return {"log_sigma2": {layer.name: variance.detach() for layer, variance in self._pairs}}

    # The hooks. A copy of the model alone is an ordinary model; one made with the sparsifier is hooked again.

    def _hook(self) -> list[Any]:
        handles: list[Any] = [
            module.register_forward_hook(NoisyForward(layer, variance), with_kwargs=True)
            for (layer, variance), modules in zip(self._pairs, self._modules, strict=True)
            for module in modules
        ]
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            hook = self._average_after_backward
            handles += [variance.register_post_accumulate_grad_hook(hook) for variance in self._log_sigma2]  # type: ignore[no-untyped-call]
        return handles

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_handles": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._handles = self._hook()


def _add_divergence(
    weights: list[Tensor],
    log_sigma2: list[Tensor],
    gradients: list[Tensor],
    slopes: list[Tensor],
    kl_weights: list[Tensor],
    scale: Tensor | None,
) -> None:
    """Add the gradient of the weighted KL divergence to those of weights (``gradients``) and of log sigma^2."""
    for weight, variance, gradient, slope, kl_weight in zip(
        weights, log_sigma2, gradients, slopes, kl_weights, strict=True
    ):
        change = kl_slope(log_alpha(weight, variance)) * kl_weight
        if scale is not None:
            change = change * scale
        theta = weight.to(change.dtype)
        slope += change
        gradient += (change * -2 * theta / (theta.square() + EPSILON)).to(weight.dtype)


def _variance(layer: SparseLayer) -> Tensor:
    """Room for log sigma^2: in the shape and layout of the weight, in single precision or better."""
    return torch.empty_like(layer.weight, dtype=torch.promote_types(layer.weight.dtype, torch.float32)).detach()


def _modules_of(model: nn.Module, layers: Sequence[SparseLayer]) -> list[list[nn.Module]]:
    maps = linear_maps(model)
    if others := tuple(layer.name for layer in layers if id(layer.weight) not in maps):
        raise ValueError(
            f"method='vd': {others[0]!r} is not the weight of a convolution or a linear layer, so noise cannot be "
            f"added to its output; exclude={others!r} leaves such weights dense"
        )
    return [maps[id(layer.weight)] for layer in layers]

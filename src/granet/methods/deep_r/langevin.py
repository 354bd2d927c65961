"""The step of Deep-R besides the gradient: a drift toward zero, noise, and a sign that no weight may cross."""

from __future__ import annotations

import torch
from torch import Tensor

from granet.kernels import runs_kernels
from granet.keyed_noise import normal_noise, salts, uniform_noise
from granet.net import SparseNet
from granet.patterns import SINGLE
from granet.weights import SparseLayer

_COIN, _NOISE = 1, 2  # what a random draw is for


def fix_signs(net: SparseNet) -> None:
    """Fix the sign of each potential connection: that of its initial weight, or a random one if that is 0."""
    for layer in net.layers:
        weight = layer.weight.detach()
        coin = uniform_noise(weight, (layer.seed, layer.index, 0, _COIN)) < 0.5
        layer.memory["sign"] = torch.where(weight == 0, coin, weight > 0)


@torch.no_grad()
def walk(net: SparseNet, l1: float, noise: float) -> tuple[list[Tensor], list[Tensor]]:
    r"""Where the active weights move as Algorithm 1 of Bellec et al. (2018) does, beyond the gradient step just taken.

    .. math:: \theta \leftarrow \theta - \eta \alpha + \sqrt{2 \eta T} \nu, \qquad w = s \theta

    with the learning rate eta, the L1 coefficient alpha, the fixed sign s and nu from N(0, 1). The temperature is
    T = eta * noise^2 / 2, so that the noise is eta * noise * nu, as in the authors' code.

    Returns, for each layer, the weights as moved, and where theta (its mean over a unit) falls below zero.
    """
    moved, crossed = zip(*(_walk(net, layer, l1, noise) for layer in net.movable), strict=True)
    return list(moved), list(crossed)


def _walk(net: SparseNet, layer: SparseLayer, l1: float, noise: float) -> tuple[Tensor, Tensor]:
    weight, accept, key = (
        layer.weight.detach(),
        net.accept.to(layer.mask.device),
        (layer.seed, layer.index, net.draw, _NOISE),
    )
    if _by_kernel(net, layer) and not isinstance(layer.rate, Tensor):
        from granet.methods.deep_r import langevin_triton

        both = salts((*key, 0)), salts((*key, 1))
        return langevin_triton.walk(weight, layer.mask, layer.memory["sign"], accept, both, layer.rate, l1, noise)
    active = layer.mask & accept
    sign = layer.memory["sign"].to(weight.dtype).mul_(2).sub_(1)
    change = normal_noise(weight, key).mul_(noise).sub_(sign * l1)
    moved = weight + change.mul_(layer.rate).mul_(active).to(weight.dtype)
    return moved, (net.units.mean(layer, moved * sign) < 0).logical_and_(active)


def _by_kernel(net: SparseNet, layer: SparseLayer) -> bool:
    """Deep-R walks after every step; some twenty operators for each layer would take longer than the step itself."""
    weight, sign = layer.weight, layer.memory["sign"]
    alike = weight.stride() == layer.mask.stride() == sign.stride()
    return runs_kernels(weight.device) and weight.dtype == torch.float32 and net.units == SINGLE and alike

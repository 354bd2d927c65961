"""Which weights matter: a score maps a layer to a tensor, and the largest absolute values win.

Selection ranks by absolute value, so a score returns the raw tensor and no copy is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from granet.keyed_noise import uniform_noise
from granet.patterns import Units
from granet.weights import SparseLayer

Score = Callable[[SparseLayer, int], Tensor]
"""``score(layer, draw)``; ``draw`` is the number of the mask update, for random scores."""


def magnitude(layer: SparseLayer, draw: int) -> Tensor:
    """|w|."""
    return layer.weight.detach()


def lamp(layer: SparseLayer, draw: int) -> Tensor:
    r"""Layer-adaptive magnitude (Lee et al., 2021, arXiv 2010.07611): w_i^2 / sum of w_j^2 over all j ranked from i up.

    Global pruning by it decides how many weights each layer keeps. Within a layer it ranks weights as magnitude does,
    equal ones by position, so the largest has the score 1 and is the last to go. Inactive weights are zero and add
    nothing; in a layer of zeros every score is 0. Sorts each layer; computed in double precision.
    """
    square, order = layer.weight.detach().reshape(-1).double().square().sort(descending=True, stable=True)
    larger = square.cumsum(0)
    score = torch.where(larger > 0, square / larger, square).to(torch.promote_types(layer.weight.dtype, torch.float32))
    return torch.empty_like(score).scatter_(0, order, score).view(layer.weight.shape)


def hidden_magnitude(layer: SparseLayer, draw: int) -> Tensor:
    """|w| of the dense weights behind the visible ones."""
    assert layer.hidden is not None
    return layer.hidden


def signal_to_noise(units: Units) -> Score:
    """theta^2 / sigma^2 = 1 / alpha, for weights with a log variance behind them; for larger units, of both sums."""

    def score(layer: SparseLayer, draw: int) -> Tensor:
        assert layer.hidden is not None
        signal = units.log_mean(layer, 2 * layer.weight.detach().to(layer.hidden.dtype).abs().log())
        return (signal - units.log_mean(layer, layer.hidden.detach())).exp()

    return score


def gradient(layer: SparseLayer, draw: int) -> Tensor:
    """|dL/dw| of every weight, active or not: of the update step, or its mean over ``grow_batch_count`` steps."""
    kept = layer.gradient
    assert kept is not None
    return kept


def given(values: Mapping[str, Tensor]) -> Score:
    """Scores computed beforehand, by the name of the layer."""
    return lambda layer, draw: values[layer.name]


def in_order(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Scores whose absolute values are ordered as the signed ``values`` are, all layers together.

    Each value becomes its rank among the distinct values, from 0 for the smallest. Ranks are whole numbers, so nothing
    is rounded and equal values stay equal.

    >>> in_order({"a": torch.tensor([0.5, -3.0]), "b": torch.tensor([-1.0, 0.5])})["b"].tolist()
    [1.0, 2.0]
    """
    device = next(iter(values.values())).device
    joined = torch.cat([value.to(device).reshape(-1) for value in values.values()])
    _, inverse = torch.unique(joined, return_inverse=True)
    places = inverse.double().split([value.numel() for value in values.values()])
    return {
        name: place.view(value.shape).to(value.device)
        for (name, value), place in zip(values.items(), places, strict=True)
    }


def random(layer: SparseLayer, draw: int) -> Tensor:
    """Uniform noise in [0, 1) that depends only on the seed, the layer, the draw and the position.

    A hash of the position instead of a generator: the same on every device and rank, and no state to save.
    """
    return uniform_noise(layer.weight, (layer.seed, layer.index, draw))


def momentum(layer: SparseLayer, draw: int) -> Tensor:
    """|m|, the exponential average of the dense gradient over all steps."""
    if "momentum" not in layer.memory:
        raise ValueError(f"{layer.name}: no momentum is kept, so the method must give a Momentum as gradient_memory")
    return layer.memory["momentum"]


def random_elsewhere(layer: SparseLayer, draw: int) -> Tensor:
    """As :func:`random`, but weights that were active before this update come last: grown when nothing else is left.

    The noise is a multiple of 2^-24, so adding one such unit keeps the two kinds apart.
    """
    noise = random(layer, draw)
    return torch.where(layer.mask, noise * 2.0**-24, noise + 2.0**-24)


PRUNE_SCORES: dict[str, Score] = {"magnitude": magnitude, "lamp": lamp}
"""The scores that a gradual method may prune by."""

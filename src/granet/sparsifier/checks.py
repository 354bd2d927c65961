"""What is refused or warned of before a model and an optimizer are touched."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from granet.error_line import and_more
from granet.hidden import groups_of
from granet.methods import Method
from granet.patterns import Units
from granet.plain_numbers import plain
from granet.weights import SparseLayer


def check_asked(model: nn.Module, method: Method, seed: int, floor: int) -> tuple[int, int]:
    """The seed and the floor as Python's numbers; ValueError for something that is none, or no model or method."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model={type(model).__name__}: must be a torch.nn.Module")
    if not isinstance(method, Method):
        raise ValueError(f"method={method!r}: must be a method, such as granet.GraNet(sparsity=0.9)")
    seed, floor = plain(seed), plain(floor)
    if type(seed) is not int:
        raise ValueError(f"seed={seed!r}: must be a whole number")
    if type(floor) is not int or floor < 0:
        raise ValueError(f"floor={floor!r}: must be a whole number of weights, 0 or more")
    return seed, floor


def check_values(layers: Sequence[SparseLayer]) -> None:
    """ValueError for a weight without values."""
    for layer in layers:
        if layer.weight.is_meta:
            raise ValueError(f"model: {layer.name!r} is on the meta device; give it its weights before sparsifying")


def check_held(optimizer: Optimizer, layers: Sequence[SparseLayer]) -> None:
    """ValueError unless the optimizer trains all these weights."""
    held = groups_of(optimizer)
    if missing := [layer.name for layer in layers if layer.weight not in held]:
        raise ValueError(
            f"optimizer: does not hold {missing[0]!r}{and_more(missing)}; give it the model's parameters, or exclude "
            "these weights"
        )


def warn_of_zeros(layers: Sequence[SparseLayer], units: Units) -> None:
    """Warn of a model that is sparse already if its zeros and the first masks do not go together.

    Training that is resumed this way would lose weights by the time its own masks are loaded, or, under a method that
    starts dense, its zeros. Less than a tenth of the weights is not worth a warning.
    """
    lost, dense = [], []
    for layer in layers:
        # A filter that is there as a whole has zeros of its own, where it reads filters that are not.
        there = units.mean(layer, (layer.weight.detach() != 0).float()) > 0
        shared, nonzero, active = (int(one.count_nonzero()) for one in (there & layer.mask, there, layer.mask))
        if nonzero - shared > nonzero / 10 and active - shared > active / 10:
            lost.append(layer.name)
        elif active == layer.mask.numel() and nonzero < 0.9 * there.numel():
            dense.append(layer.name)
    if lost or dense:
        what = "zeros there and drop other weights" if lost else "every weight, so zeros there are trained again"
        warnings.warn(
            f"granet: {(lost or dense)[0]}{and_more(lost or dense)}: sparse already, but the first masks keep {what}; "
            "to resume training, give sparsify() its state=, or load the model after it",
            stacklevel=4,
        )

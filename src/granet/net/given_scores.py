"""What a score gives, which may be a user's own function: looked at before weights are ranked by it."""

from __future__ import annotations

from torch import Tensor

from granet.scores import Score
from granet.weights import SparseLayer


def check_shape(layer: SparseLayer, values: object) -> None:
    """ValueError for scores that are not one number for each weight."""
    shape = layer.weight.shape
    if not isinstance(values, Tensor) or values.shape != shape:
        given = f"a tensor of shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"score: gave {given} for {layer.name!r}; must be a tensor of its shape, {list(shape)}")


def check_numbers(layer: SparseLayer, values: Tensor, accept: Tensor) -> None:
    """ValueError for scores that are NaN, which rank above all others; not where training itself has diverged."""
    if not bool(values.sum().isnan()):  # a tenth of the cost; infinities may make it NaN too
        return
    if not (bool(values.isnan().any()) and bool(accept) and bool(layer.weight.isfinite().all())):
        return
    if layer.hidden is not None and not bool(layer.hidden.isfinite().all()):  # the model shows zeros in their place
        raise ValueError(
            f"{layer.name!r}: what is trained behind its inactive weights is not finite, so training has diverged; "
            "lower the learning rate or clip the gradients"
        )
    raise ValueError(f"score: gave NaN for {layer.name!r}, all of whose weights are finite; must not be NaN")


def without_gradient(score: Score) -> Score:
    """The same score, but reading ``layer.gradient`` is an error: it is zero wherever a weight may grow."""

    def blind(layer: SparseLayer, draw: int) -> Tensor:
        with layer.gradient_refused("growth reads layer.gradient, so the method must say needs_gradient = True"):
            return score(layer, draw)

    return blind

"""What is refused before a model and an optimizer are touched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch.optim import Optimizer

from granet.layers import SparseLayer


def check_held(optimizer: Optimizer, layers: Sequence[SparseLayer], taken: Iterable[SparseLayer]) -> None:
    """ValueError unless the optimizer trains all these weights, and none of them is ``taken`` already."""
    others = {id(layer.weight) for layer in taken}
    for layer in layers:
        if id(layer.weight) in others:
            raise ValueError(f"optimizer: {layer.name!r} is sparsified through it already; remove() that first")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [layer.name for layer in layers if id(layer.weight) not in held]
    if missing:
        raise ValueError(
            f"optimizer: does not hold {missing[0]!r}"
            + (f" and {len(missing) - 1} more of the model's weights" if len(missing) > 1 else "")
            + "; give it the model's parameters, or exclude these"
        )

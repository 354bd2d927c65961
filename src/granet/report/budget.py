"""What fixed distributions would have given the layers of a run."""

from __future__ import annotations

from collections.abc import Sequence

from granet.distributions import counts, distribution
from granet.training.rundir import LayerCount

FIXED = {"ERK": "erk", "uniform": "uniform"}


def fixed_budgets(layers: Sequence[LayerCount]) -> dict[str, list[int]]:
    """Active weights of each layer under ERK and uniform, with exactly as many in all as `layers` have.

    As a run that starts with such a distribution would have them: whole numbers, and no layer is empty as long as
    there is a weight for each.
    """
    shapes = [layer.shape for layer in layers]
    total = sum(layer.active for layer in layers)
    if total == 0:  # there is nothing to share, and no density to solve for
        return {label: [0] * len(layers) for label in FIXED}
    density = total / sum(layer.weights for layer in layers)
    floor = min(1, total // len(layers))
    return {label: counts(shapes, distribution(name)(shapes, density), total, floor) for label, name in FIXED.items()}

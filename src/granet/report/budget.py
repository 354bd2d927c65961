"""What fixed distributions would have given the layers of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from granet.distributions import counts, distribution
from granet.training.rundir import LayerCount

FIXED = {"ERK": "erk", "uniform": "uniform"}


def fixed_budgets(layers: Sequence[LayerCount]) -> dict[str, list[int]]:
    """Active weights of each layer under ERK and uniform, with exactly as many in all as `layers` have.

    As a run that starts with such a distribution would have them: whole numbers, and no layer is empty as long as
    there is a weight for each.
    """
    return fixed_counts([layer.shape for layer in layers], sum(layer.active for layer in layers))


def fixed_counts(shapes: Sequence[Sequence[int]], total: int) -> dict[str, list[int]]:
    """The same for layers of these shapes that share ``total`` active weights."""
    if total == 0:  # there is nothing to share, and no density to solve for
        return {label: [0] * len(shapes) for label in FIXED}
    density = total / sum(math.prod(shape) for shape in shapes)
    floor = min(1, total // len(shapes))
    return {label: counts(shapes, distribution(name)(shapes, density), total, floor) for label, name in FIXED.items()}

"""What fixed distributions would have given the layers of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from granet.distributions import counts, distribution

FIXED = {"ERK": "erk", "uniform": "uniform"}


def fixed_counts(shapes: Sequence[Sequence[int]], total: int) -> dict[str, list[int]]:
    """Active weights of layers of these shapes under ERK and uniform, exactly ``total`` in all.

    As a run that starts with such a distribution would have them: whole numbers, and no layer is empty as long as
    there is a weight for each.
    """
    if total == 0:  # there is nothing to share, and no density to solve for
        return {label: [0] * len(shapes) for label in FIXED}
    density = total / sum(math.prod(shape) for shape in shapes)
    floor = min(1, total // len(shapes))
    return {label: counts(shapes, distribution(name)(shapes, density), total, floor) for label, name in FIXED.items()}

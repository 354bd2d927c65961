"""Finding, by trial, the setting that gives a requested sparsity."""

from __future__ import annotations

import math
from collections.abc import Callable


def bisect_knob(
    sparsity_of: Callable[[float], float],
    target: float,
    low: float,
    high: float,
    tolerance: float = 0.005,
    trials: int = 12,
) -> float:
    """Bisect for a setting whose sparsity is within ``tolerance`` of ``target``; returns the first found.

    For methods whose sparsity is an outcome. ``low`` is the end that gives too little sparsity and ``high`` the one
    that gives too much, whichever is the larger number; in between the sparsity must be monotonic. The ends themselves
    are not tried, since a trial may be a whole training. For a setting that spans orders of magnitude, search the
    exponent.

    Raises:
        ValueError: no knob tried came near enough; it says what the nearest one reached.

    >>> bisect_knob(lambda knob: knob**2, target=0.9, low=0, high=1, tolerance=0.01)
    0.953125
    """
    if trials < 1:
        raise ValueError(f"trials={trials!r}: must be 1 or more")
    nearest, reached = math.nan, math.inf
    for _ in range(trials):
        knob = (low + high) / 2
        sparsity = sparsity_of(knob)
        if not abs(reached - target) <= abs(sparsity - target):
            nearest, reached = knob, sparsity
        if abs(sparsity - target) <= tolerance:
            return knob
        low, high = (knob, high) if sparsity < target else (low, knob)
    raise ValueError(
        f"sparsity={target:.6g}: not reached within {tolerance:g} in {trials} trials; "
        f"the nearest was {reached:.6g}, with the knob at {nearest:.6g}"
    )

"""How much, and when: pure functions of the progress of training, a number in [0, 1].

``initial`` is the value at progress 0, ``final`` the value at progress 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def cubic(initial: float, final: float, progress: float) -> float:
    r"""Eq. 1 of the GraNet paper (Zhu & Gupta, 2017): fast at first, gentle near the end.

    .. math:: s_t = s_f + (s_i - s_f) (1 - p)^3

    >>> [round(cubic(0.0, 0.9, p), 5) for p in (0, 1 / 38, 0.5, 1)]
    [0.0, 0.0692, 0.7875, 0.9]
    """
    if progress >= 1:
        return final
    return final + (initial - final) * (1 - progress) ** 3


def cosine(initial: float, final: float, progress: float) -> float:
    r"""Cosine annealing (Dettmers & Zettlemoyer, 2019), used for the regeneration ratio r_t.

    .. math:: r_t = r_f + (r_i - r_f) \frac{1 + \cos(\pi p)}{2}

    >>> [round(cosine(0.5, 0.005, p), 4) for p in (0, 0.5, 1)]
    [0.5, 0.2525, 0.005]
    """
    return final + (initial - final) * (1 + math.cos(math.pi * progress)) / 2


def geometric(final: float, progress: float) -> float:
    r"""Sparsity from 0 to ``final`` in rounds that each prune the same share of what is left.

    .. math:: s_t = 1 - (1 - s_f)^p

    >>> [round(geometric(0.99, k / 2), 6) for k in range(3)]
    [0.0, 0.9, 0.99]
    """
    if progress >= 1:
        return final
    density: float = (1 - final) ** progress
    return 1 - density


def multistep(initial: float, factor: float, milestones: Sequence[int], step: int) -> float:
    """``initial``, multiplied by ``factor`` at each milestone that ``step`` has reached: the usual learning rate.

    >>> [round(multistep(0.1, 0.1, (80, 120), step), 6) for step in (0, 79, 80, 120)]
    [0.1, 0.1, 0.01, 0.001]
    """
    return initial * factor ** sum(step >= milestone for milestone in milestones)

"""Numbers of other libraries, such as numpy's, as Python's own: JSON and checkpoints hold no others."""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any


def plain(value: Any) -> Any:
    """``value`` as an int if it is of a kind of whole numbers, as a float if of one of real numbers; else as it is.

    A bool is no number here, nor is a tensor with dimensions, so ``type(plain(value)) is int`` says whether a whole
    number was given.

    >>> import numpy
    >>> [plain(value) for value in (3, numpy.int64(3), numpy.float64(0.5), numpy.float32(0.5), True, "3")]
    [3, 3, 0.5, 0.5, True, '3']
    """
    if isinstance(value, bool) or getattr(value, "ndim", 0) > 0:
        return value
    try:
        return operator.index(value)
    except TypeError:
        return float(value) if isinstance(value, Real) else value

"""The inputs of a batch as arguments of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def arguments(
    inputs: Any, several: tuple[type[Sequence[Any]], ...] = (tuple, list)
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named ones: a tuple is several arguments, as is a list unless told otherwise; a dict named ones.

    A named tuple, such as a PackedSequence, is one argument.

    >>> arguments(3), arguments((3, 4)), arguments({"tokens": 3})
    (((3,), {}), ((3, 4), {}), ((), {'tokens': 3}))
    >>> arguments([3, 4]), arguments([3, 4], several=(tuple,))
    (((3, 4), {}), (([3, 4],), {}))
    """
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, several) and not hasattr(inputs, "_fields"):
        return tuple(inputs), {}
    return (inputs,), {}

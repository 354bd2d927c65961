"""The inputs of a batch: as arguments of a model, and the tensors in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor


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


def each_tensor(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """``value`` with its tensors changed, also those inside tuples, with or without names, lists and dicts."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: each_tensor(change, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [each_tensor(change, item) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)  # a PackedSequence, say
        return items if isinstance(value, list) else tuple(items)
    return value

"""Which weights are sparsified at present: each by one sparsifier at most, whatever optimizer has it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from weakref import WeakValueDictionary

from granet.weights import SparseLayer

_holders: WeakValueDictionary[int, object] = WeakValueDictionary()
"""The id of a weight to the sparsifier that is hooked for it; it keeps the weight, so the id is not used again."""


def hold(layers: Iterable[SparseLayer], sparsifier: object) -> None:
    _holders.update((id(layer.weight), sparsifier) for layer in layers)


def let_go(layers: Iterable[SparseLayer]) -> None:
    for layer in layers:
        _holders.pop(id(layer.weight), None)


def check_free(layers: Sequence[SparseLayer]) -> None:
    """ValueError if a sparsifier holds one of these weights already, through this optimizer or another one."""
    if any(id(layer.weight) in _holders for layer in layers):
        gc.collect()  # a sparsifier that nobody has any more is in a cycle with its optimizer
    for layer in layers:
        if id(layer.weight) in _holders:
            raise ValueError(f"model: {layer.name!r} is sparsified already; remove() that sparsifier first")

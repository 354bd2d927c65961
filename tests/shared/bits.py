"""Trainings that are saved and loaded whole, and whether two states are the same bits."""

from __future__ import annotations

from typing import Any

import torch

PARTS = ("model", "sparsifier", "optimizer")


class Parts:
    """A training that has these parts as its attributes."""

    def state(self) -> dict[str, Any]:
        return {part: getattr(self, part).state_dict() for part in PARTS}

    def load(self, state: dict[str, Any]) -> None:
        for part in PARTS:
            getattr(self, part).load_state_dict(state[part])


def flatten(value: Any, path: tuple = ()) -> dict[tuple, Any]:
    """Every leaf of nested dicts and lists, by its path; tensors are copied. What is empty is a leaf, too."""
    if isinstance(value, dict):
        pairs = list(value.items())
    else:
        pairs = list(enumerate(value)) if isinstance(value, list | tuple) else []
    if not pairs:
        return {path: value.detach().clone() if torch.is_tensor(value) else value}
    return {place: leaf for key, item in pairs for place, leaf in flatten(item, (*path, key)).items()}


def differences(a: Any, b: Any) -> list[tuple]:
    """The paths at which two states are not the same bits; they must have the same paths."""
    a, b = flatten(a), flatten(b)
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    return [k for k in a if not (torch.equal(a[k], b[k]) if torch.is_tensor(a[k]) else a[k] == b[k])]

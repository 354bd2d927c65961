"""Masks as users give them: those of a sparsifier, or by name, checked against the tensors that they are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor

from granet.names import plain_name


class Masked(Protocol):
    """What is read of a sparsifier."""

    @property
    def masks(self) -> Mapping[str, Tensor]: ...


def given_masks(sparsifier: Masked | None, masks: Mapping[str, Tensor] | None) -> Mapping[str, Tensor] | None:
    """The masks of the sparsifier, or those given in its place, or None for neither; ValueError for both."""
    if sparsifier is None:
        return masks
    if masks is not None:
        raise ValueError("masks: must be left out when a sparsifier is given")
    if not hasattr(sparsifier, "masks"):
        told = "; masks alone are given as masks=..." if isinstance(sparsifier, Mapping) else ""
        raise ValueError(f"sparsifier={type(sparsifier).__name__}: must be what granet.sparsify returned{told}")
    return sparsifier.masks


def check_masks(
    masks: Mapping[str, Tensor], tensors: Mapping[str, Tensor], firsts: Mapping[str, str]
) -> Iterator[tuple[str, str, Tensor]]:
    """Each mask with its name as given, and the first name of the tensor that it is for.

    ``tensors`` are those that may have a mask, by plain name; ``firsts`` maps each name to the tensor's first name,
    since tied weights have several. ValueError for something that is no mask, or not of these tensors.
    """
    if not isinstance(masks, Mapping):
        raise ValueError(f"masks={type(masks).__name__}: must map parameter names to masks, as sparsifier.masks does")
    found = set()
    for key, mask in masks.items():
        name = plain_name(key)
        if name not in tensors:
            raise ValueError(f"masks[{key!r}]: must be the name of a weight of the model")
        shape = tuple(tensors[name].shape)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != shape:
            given = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise ValueError(f"masks[{key!r}]={given}: must be a bool tensor of shape {shape}, as its weight")
        if mask.is_meta:
            raise ValueError(f"masks[{key!r}]: is on the meta device; it must have values")
        if firsts[name] in found:
            raise ValueError(f"masks[{key!r}]: must be left out, {firsts[name]!r} is the same tensor and has a mask")
        found.add(firsts[name])
        yield key, firsts[name], mask

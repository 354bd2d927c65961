"""Whether a smaller model gives what the whole one gives: on the example, on other values and on two of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from granet.model_inputs import arguments
from granet.probe.undisturbed import undisturbed

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Of the largest output: a sum of fewer terms is rounded otherwise."""


class Outputs:
    """What the whole model puts out, kept to compare others with."""

    def __init__(self, model: nn.Module, example: Any) -> None:
        self._cases: list[tuple[Any, list[Tensor]]] = [(example, _run(model, example))]
        for inputs in _others(example):
            try:
                self._cases.append((inputs, _run(model, inputs)))
            except Exception:  # it takes no such batch, or no such values
                continue

    def differ(self, model: nn.Module) -> str | None:
        """What is different with this model, if something is."""
        for inputs, expected in self._cases:
            try:
                found = _run(model, inputs)
            except Exception as error:
                return f"{type(error).__name__}: {error}".splitlines()[0]
            if [tensor.shape for tensor in found] != [tensor.shape for tensor in expected]:
                return "its outputs have other shapes"
            for one, other in zip(found, expected, strict=True):
                if not _close(one, other):
                    return "its outputs are others"
        return None


def _run(model: nn.Module, inputs: Any) -> list[Tensor]:
    positional, named = arguments(inputs)
    with undisturbed(model, [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]):
        outputs = model(*positional, **named)
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _others(example: Any) -> Iterator[Any]:
    generator = torch.Generator().manual_seed(0)

    def changed(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator).to(tensor)
            return tensor + noise * (tensor.std() if tensor.numel() > 1 else 1) + 0.1 * noise
        return tensor.flip(-1) if tensor.ndim and tensor.dtype != torch.bool else tensor

    other = tree_map_only(Tensor, changed, example)
    yield other
    leaves = [leaf for leaf in tree_leaves(example) if isinstance(leaf, Tensor)]
    if leaves and all(leaf.ndim for leaf in leaves) and len({len(leaf) for leaf in leaves}) == 1:
        both = iter([torch.cat(pair) for pair in zip(leaves, tree_leaves_of(other), strict=True)])
        yield tree_map_only(Tensor, lambda _: next(both), example)


def tree_leaves_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _close(one: Tensor, other: Tensor) -> bool:
    if not other.is_floating_point():
        return bool(torch.equal(one, other))
    scale = other.abs().max().double() if other.numel() else torch.zeros(())
    error = (one.double() - other.double()).abs().max() if other.numel() else torch.zeros(())
    tolerance = _TOLERANCE.get(other.dtype, 1e-4)
    if other.is_cuda and other.dtype == torch.float32:
        tolerance = 1e-2  # convolutions take 10 bits of each number there
    return bool(error <= tolerance * scale) or bool(torch.equal(one, other))

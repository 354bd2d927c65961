"""Whether something else gives what a model gives: on the example, on other values and on two of it at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from granet.error_line import error_line
from granet.model_inputs import arguments
from granet.probe.undisturbed import undisturbed

Run = Callable[[Any], list[Tensor]]
"""From inputs, nested as the example is, to the tensors among the outputs."""
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Of the largest output: a sum of fewer terms is rounded otherwise."""


class Different(Exception):
    """What is different."""


class Outputs:
    """What a model puts out in eval mode, kept to compare others with."""

    def __init__(self, model: nn.Module, example: Any, any_batch: bool = True) -> None:
        self._cases: list[tuple[Any, list[Tensor]]] = [(example, outputs_of(model, example))]
        other = _other(example)
        both = twice(example, other) if any_batch else None
        for inputs in (other,) if both is None else (other, both):
            try:
                self._cases.append((inputs, outputs_of(model, inputs)))
            except Exception:  # it takes no such batch, or no such values
                continue

    def differ(self, model: nn.Module) -> str | None:
        """What is different with this model, if something is."""
        try:
            self.difference(partial(outputs_of, model))
        except Different as what:
            return str(what)
        return None

    def difference(self, run: Run, rounded: torch.dtype | None = None) -> float:
        """The largest difference, as a share of the largest output; Different if it is more than that of rounding.

        What ``run`` computes with may be ``rounded`` further than the outputs.
        """
        largest = 0.0
        for inputs, expected in self._cases:
            try:
                found = run(inputs)
            except Exception as error:
                raise Different(error_line(error)) from error
            if list(map(_kind, found)) != list(map(_kind, expected)):
                raise Different("its outputs have other shapes or types")
            for one, other in zip(found, expected, strict=True):
                largest = max(largest, _difference(one, other, rounded or other.dtype))
        return largest


def outputs_of(model: nn.Module, inputs: Any) -> list[Tensor]:
    """The tensors among them, in eval mode, without a trace."""
    positional, named = arguments(inputs)
    with undisturbed(model, [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]):
        outputs = model(*positional, **named)
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


def _other(example: Any) -> Any:
    generator = torch.Generator().manual_seed(0)

    def changed(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator).to(tensor)
            return tensor + noise * (tensor.std() if tensor.numel() > 1 else 1) + 0.1 * noise
        return tensor.flip(-1) if tensor.ndim and tensor.dtype != torch.bool else tensor

    return tree_map_only(Tensor, changed, example)


def twice(example: Any, other: Any) -> Any:
    """A batch of both; None if the tensors are no batches of one size."""
    ones, others = ([leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)] for tree in (example, other))
    if not ones or not all(leaf.ndim for leaf in ones) or len({len(leaf) for leaf in ones}) > 1:
        return None
    both = iter([torch.cat(pair) for pair in zip(ones, others, strict=True)])
    return tree_map_only(Tensor, lambda _: next(both), example)


def _difference(one: Tensor, other: Tensor, rounded: torch.dtype) -> float:
    if torch.equal(one, other):
        return 0.0
    error, scale = float((one.double() - other.double()).abs().max()), float(other.double().abs().max())
    tolerance = _TOLERANCE.get(rounded, 1e-4) if other.is_floating_point() else 0
    if other.is_cuda and other.dtype == torch.float32:
        tolerance = 1e-2  # convolutions take 10 bits of each number there
    if not error <= tolerance * scale:  # nor if it is not a number
        raise Different("its outputs are others")
    return error / scale


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype

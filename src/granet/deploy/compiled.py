"""What `compile` and `load` give: a function of the model's inputs, which it takes only as it was compiled for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from granet.deploy.plan import Plan

Engine = Callable[..., tuple[Tensor, ...]]
"""Runs one plan: its inputs, contiguous or not, to its outputs."""


class Compiled:
    """A compiled model. Call it as the model was called; several threads may do so at once.

    It computes for the shapes of the example alone, another batch size among them: compile once for each.
    """

    def __init__(
        self,
        run: Engine,
        example: Sequence[Any],
        nested_inputs: pytree.TreeSpec,
        nested_outputs: pytree.TreeSpec,
        engines: dict[str, str],
        whole: Plan | None,
        plans: Sequence[Plan],
        outside: Sequence[str] = (),
    ) -> None:
        self._run = run
        self._expected = [_Expected(number, leaf) for number, leaf in enumerate(example)]
        self._nested_inputs, self._nested_outputs = nested_inputs, nested_outputs
        self._names = list(nested_inputs.unflatten(range(len(example)))[1])
        self._in_a_row = nested_inputs == pytree.tree_structure((tuple(range(len(example))), {}))
        self._gives_one = nested_outputs.is_leaf()
        self.engines = engines
        """By the name of each plan, what runs it."""
        self.whole = whole
        """The plan that the whole model is; None if a part of it runs in PyTorch."""
        self.plans = tuple(plans)
        self.outside = tuple(outside)
        """The operators that PyTorch runs, each once."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        in_a_row = self._in_a_row and not kwargs and len(args) == len(self._expected)
        leaves = args if in_a_row and all(isinstance(arg, Tensor) for arg in args) else self._leaves(args, kwargs)
        for expected, leaf in zip(self._expected, leaves, strict=True):
            expected.check(leaf)
        with torch.no_grad():
            outputs = self._run(*leaves)
        return outputs[0] if self._gives_one else pytree.tree_unflatten(list(outputs), self._nested_outputs)

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """What is nested in the inputs. Few are: it takes longer than a small network does."""
        if kwargs.keys() == set(self._names):
            kwargs = {name: kwargs[name] for name in self._names}
        leaves, nested = pytree.tree_flatten((args, kwargs))
        if nested != self._nested_inputs:
            raise ValueError(
                f"inputs: {len(leaves)} in {_shown(nested)}; must be {len(self._expected)} in"
                f" {_shown(self._nested_inputs)}, as in the example"
            )
        return leaves

    def __repr__(self) -> str:
        shapes = ", ".join(map(str, self._expected))
        return f"<granet.deploy: {shapes}; {', '.join(f'{name} in {engine}' for name, engine in self.engines.items())}>"


class _Expected:
    """A leaf of the inputs as it must be."""

    def __init__(self, number: int, example: Any) -> None:
        self._name = f"input {number}"
        self._tensor = isinstance(example, Tensor)
        self._shape = tuple(example.shape) if self._tensor else example
        self._dtype = example.dtype if self._tensor else None

    def check(self, leaf: Any) -> None:
        if not self._tensor:
            if type(leaf) is not type(self._shape) or leaf != self._shape:
                raise ValueError(f"{self._name}: {leaf!r}: must be {self._shape!r}, with which it was compiled")
            return
        if not isinstance(leaf, Tensor):
            raise ValueError(f"{self._name}: {type(leaf).__name__}: must be a torch.Tensor")
        if tuple(leaf.shape) != self._shape:
            raise ValueError(
                f"{self._name}: shape {list(leaf.shape)}: must be {list(self._shape)}, for which it was compiled;"
                " compile again for others, another batch size among them"
            )
        if leaf.dtype != self._dtype or leaf.device.type != "cpu" or leaf.layout != torch.strided:
            raise ValueError(
                f"{self._name}: {leaf.dtype} on {leaf.device}, {leaf.layout}: must be {self._dtype} on cpu, strided"
            )

    def __str__(self) -> str:
        return str(list(self._shape)) if self._tensor else repr(self._shape)


def _shown(nested: pytree.TreeSpec) -> str:
    args, kwargs = nested.unflatten(["*"] * nested.num_leaves)
    return f"({', '.join([*map(str, args), *(f'{name}={value}' for name, value in kwargs.items())])})"

"""What a graph computes from its weights alone: it is the same in every call, so a plan holds the result."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx


class Constants:
    """The constants of a graph; each is computed when it is first asked for."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module = module
        self._values: dict[fx.Node, Tensor] = {}
        written = {node.args[0] for node in module.graph.nodes if _writes(node)}
        self._constant: set[fx.Node] = set()
        for node in module.graph.nodes:
            if node.op == "get_attr":
                constant = node not in written
            else:
                constant = _computes(node) and all(source in self._constant for source in node.all_input_nodes)
            if constant:
                self._constant.add(node)

    def has(self, node: fx.Node) -> bool:
        return node in self._constant

    def value(self, node: fx.Node) -> Tensor:
        if node not in self._values:
            with torch.no_grad():
                self._values[node] = self._compute(node)
        return self._values[node]

    def name(self, node: fx.Node) -> str:
        """Of the parameter or buffer that it is, or is computed from."""
        while node.op != "get_attr":
            node = node.all_input_nodes[0]
        return str(node.target)

    def _compute(self, node: fx.Node) -> Any:
        if node.op != "get_attr":
            args, kwargs = fx.map_arg((node.args, node.kwargs), self.value)
            return node.target(*args, **kwargs)  # type: ignore[operator]
        found: Any = self._module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return found.detach()


def _computes(node: fx.Node) -> bool:
    """Whether it computes the same each time, from constants if its inputs are such."""
    if node.op != "call_function" or not node.all_input_nodes:
        return False
    tags = getattr(node.target, "tags", None)
    return tags is not None and torch.Tag.nondeterministic_seeded not in tags and not _writes(node)


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable

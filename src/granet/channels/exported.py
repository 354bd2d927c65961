"""A model as the operators that it runs on an example, without regard to classes, control flow or writing in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from granet.channels.program import program_of
from granet.model_inputs import arguments


@dataclass(frozen=True)
class Exported:
    """The operators of a forward pass in eval mode, in the order they run in; every shape is that of the example."""

    nodes: tuple[fx.Node, ...]
    tensors: Mapping[fx.Node, str]
    """The parameters and buffers among the nodes, by their names; tied ones have one name."""
    values: Mapping[str, Tensor]
    """The model's own tensors."""

    def name(self, node: object) -> str | None:
        """The parameter or buffer that a node is, if it is one."""
        return self.tensors.get(node) if isinstance(node, fx.Node) else None


def export(model: nn.Module, example: Any) -> Exported:
    """Export ``model(example)``, a tuple as several arguments and a dict as named ones; the model is left as it was.

    ValueError with one line, which names the operator and the place in the model, if that cannot be done.
    """
    program = program_of(model, *arguments(example))
    signature = program.graph_signature
    named_inputs = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    values = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    first = {id(tensor): name for name, tensor in reversed(values.items())}
    nodes = tuple(program.graph_module.graph.nodes)
    found = {node: named_inputs[node.name] for node in nodes if node.name in named_inputs}
    return Exported(nodes, {node: first[id(values[name])] for node, name in found.items()}, values)


def operator_of(node: fx.Node) -> str:
    """The operator's name without its overload, such as ``conv2d``; empty for what calls nothing."""
    if node.op != "call_function":
        return ""
    schema = getattr(node.target, "_schema", None)
    name = schema.name if schema is not None else getattr(node.target, "__name__", str(node.target))
    return str(name.removeprefix("aten::"))


def shape_of(node: Any) -> tuple[int, ...] | None:
    """The shape of the tensor that a node returns; None if it returns none, or several."""
    value = node.meta.get("val")
    return tuple(int(size) for size in value.shape) if isinstance(value, Tensor) else None


def argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    """An argument of an operator, given by place or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def owner_of(node: fx.Node) -> str:
    """The name of the module whose forward calls the operator."""
    stack = node.meta.get("nn_module_stack") or {}
    return str(list(stack.values())[-1][0]) if stack else ""

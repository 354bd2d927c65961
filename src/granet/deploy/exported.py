"""A model as one graph of ATen operators, by torch.export: no classes, control flow, training or in-place writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from granet.channels import program_of
from granet.error_line import first_line
from granet.model_inputs import arguments
from granet.probe.modes import in_mode


@dataclass(frozen=True)
class Exported:
    """The graph of a model and how its inputs and outputs are nested."""

    module: fx.GraphModule
    """Takes the leaves of the inputs in a row, and gives those of the outputs as a tuple."""
    inputs: tuple[Any, ...]
    """The leaves of the example."""
    nested_inputs: pytree.TreeSpec
    """Of (positional arguments, named ones)."""
    nested_outputs: pytree.TreeSpec


def export(model: nn.Module, example_input: Any) -> Exported:
    """The graph of a model in evaluation mode, for inputs of exactly these shapes.

    ValueError that says what cannot be exported and where in the source of the model, or that it fails by itself.
    """
    positional, named = checked_arguments(model, example_input)
    program = program_of(model, positional, named)
    assert program.call_spec.in_spec is not None and program.call_spec.out_spec is not None
    leaves, nested = pytree.tree_flatten((positional, named))
    return Exported(_flat(program.module(check_guards=False)), tuple(leaves), nested, program.call_spec.out_spec)


def checked_arguments(model: nn.Module, example_input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example as the model's arguments; ValueError unless both are on the CPU and one takes the other."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model={type(model).__name__}: must be a torch.nn.Module")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device.type != "cpu":
            raise ValueError(f"model: {name!r} is on {tensor.device}; what is compiled runs on the CPU")
    positional, named = pytree.tree_map_only(Tensor, _plain, arguments(example_input))
    with in_mode(model, training=False), torch.no_grad():
        try:
            model(*positional, **named)
        except Exception as error:
            raise ValueError(f"model: fails on example_input ({first_line(error)})") from error
    return positional, named


def _plain(tensor: Tensor) -> Tensor:
    """Of the usual order of memory, for which the graph is then made, and of no autograd graph."""
    if tensor.device.type != "cpu":
        raise ValueError(f"example_input: is on {tensor.device}; what is compiled runs on the CPU")
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _flat(module: Any) -> fx.GraphModule:
    """Without nesting, guards and assertions; and where it says view, any order of memory will do."""
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node.op == "output":
            graph.output(tuple(fx.map_arg(pytree.tree_leaves(node.args[0]), known.__getitem__)))
        elif node.target != torch.ops.aten._assert_tensor_metadata.default:
            known[node] = graph.node_copy(node, known.__getitem__)
            if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
                known[node].target = torch.ops.aten.reshape.default
    return fx.GraphModule(module, graph)

"""A model as the operators that it runs on an example, without regard to classes, control flow or writing in place."""

from __future__ import annotations

import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from granet.error_line import first_line
from granet.model_inputs import arguments
from granet.probe.modes import in_mode

_TORCH = str(Path(torch.__file__).parent)


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
    positional, named = arguments(example)
    with _aside() as said:
        try:
            with _single_operators(), torch.no_grad(), in_mode(model, training=False):
                program = torch.export.export(model, positional, named, strict=False).run_decompositions({})
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a stranger's forward may raise anything
            why = f"{_operator(error, said.getvalue())}{first_line(error)}{_where(error)}"
            raise ValueError(f"model: {type(model).__name__} cannot be exported: {why}") from error
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


@contextmanager
def _single_operators() -> Iterator[None]:
    """Attention as its single operators: a fused one would hide what is inside."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _aside() -> Iterator[io.StringIO]:
    """What the exporter writes to the terminal when it fails: the operators that it has seen so far.

    It also warns of itself, by names that torch has deprecated.
    """
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()) as said, redirect_stdout(said):
            warnings.simplefilter("ignore")
            yield said
    finally:
        log.setLevel(level)


def _operator(error: BaseException, said: str) -> str:
    """The operator that it failed at, as far as the message or the operators before it tell."""
    found = re.findall(r"torch\.ops\.(\w+\.\w+\.\w+)", f"{said}\n{error}")
    return f"at {found[-1]}: " if found else ""


def _where(error: BaseException) -> str:
    """The last line of code outside torch that ran, in the model's forward or what it calls."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((_TORCH, "<"))]
    frames = [frame for frame in frames if Path(frame.filename) != Path(__file__)]
    if not frames:
        return ""
    last = frames[-1]
    code = f": {last.line}" if last.line else ""
    return f" (in {last.name}, {Path(last.filename).name}:{last.lineno}{code})"

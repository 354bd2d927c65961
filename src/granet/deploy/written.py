"""What every export begins and ends with: a program that a file can hold, and that the file has it, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from granet.channels import program_of
from granet.deploy.exported import checked_arguments
from granet.deploy.outputs import Different, Outputs, Run, twice
from granet.model_inputs import arguments
from granet.names import unwrapped


@dataclass(frozen=True)
class Written:
    """A file that was written, after it gave what the model gives."""

    path: Path
    size: int
    """In bytes."""
    weights: int
    """The elements of the parameters in it."""
    zeros: int
    """How many of them are zero, counted there."""
    difference: float
    """The largest between its outputs and PyTorch's, as a share of the largest output."""
    any_batch: bool
    """Whether it takes batches of any size, or of the example's alone."""

    def __str__(self) -> str:
        batch = "any batch size" if self.any_batch else "the example's batch size alone"
        return (
            f"{self.path}: {self.size / 1e6:,.2f} MB, {self.zeros:,} of {self.weights:,} weights are zero,"
            f" outputs within {self.difference:.1e} of PyTorch's, {batch}"
        )


@dataclass(frozen=True)
class Exportable:
    """A model as a program, and what the file that is made of it is held against."""

    program: ExportedProgram
    any_batch: bool
    parameters: Mapping[str, Tensor]
    """Those that the program uses, by name; tied ones have one name."""
    outputs: Outputs

    def written(self, path: Path, size: int, tensors: Mapping[str, Tensor], run: Run) -> Written:
        """About a file with these tensors and outputs; ValueError if they are not the model's."""
        zeros = 0
        for name, parameter in self.parameters.items():
            if name not in tensors or not torch.equal(tensors[name], parameter):
                raise ValueError(f"model: {name!r} would not be the same in the file, which must hold it as it is")
            zeros += int((tensors[name] == 0).sum())
        try:
            difference = self.outputs.difference(run)
        except Different as what:
            raise ValueError(f"model: the file must give the model's outputs, and would not ({what})") from what
        weights = sum(parameter.numel() for parameter in self.parameters.values())
        return Written(path, size, weights, zeros, difference, self.any_batch)


def exportable(model: nn.Module, example_input: Any, any_batch: bool) -> Exportable:
    """A trained model in eval mode as a program; of any batch size, if that is asked for and the model can.

    ValueError that says why it cannot be one: what cannot be exported and where, values that are not finite, or weights
    that are not plain yet.
    """
    checked_arguments(model, example_input)
    model = unwrapped(model)
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"model: {name!r} has values that are not finite; must be numbers")
    program = _of_any_batch(model, example_input) if any_batch else None
    any_batch = program is not None
    if program is None:
        program = program_of(model, *arguments(example_input))
    signature = program.graph_signature
    held: dict[str, str] = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held |= signature.inputs_to_lifted_tensor_constants
    places = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    constants = {node: node.meta["val"].shape for node in places if node.name in held}
    nodes = [node for node in places if node.name in signature.inputs_to_parameters and node.users]
    for node in nodes:
        _check_plain(held[node.name], node, constants)
    used = [held[node.name] for node in nodes]
    parameters = {name: tensors[name].detach() for name in used}
    return Exportable(program, any_batch, parameters, Outputs(model, example_input, any_batch))


def _of_any_batch(model: nn.Module, example_input: Any) -> ExportedProgram | None:
    """None if the model or its inputs are made for one batch size."""
    both = twice(example_input, example_input)  # a length of 1 would be taken to be always 1
    if both is None:
        return None
    try:
        program = program_of(model, *arguments(both), any_batch=True)
    except ValueError:
        return None
    given = set(program.graph_signature.user_inputs)
    values = [node.meta.get("val") for node in program.graph_module.graph.nodes if node.name in given]
    free = all(isinstance(value.shape[0], torch.SymInt) for value in values if isinstance(value, Tensor))
    return program if free else None


def _check_plain(name: str, node: fx.Node, constants: Mapping[fx.Node, torch.Size]) -> None:
    """ValueError if a tensor is put together with another one of its shape, such as a mask, in every call."""
    for user in node.users:
        sources = user.all_input_nodes
        if len(sources) > 1 and all(constants.get(source) == constants[node] for source in sources):
            raise ValueError(
                f"model: {name!r} is computed anew in every call, as by a mask or parametrization; must be plain:"
                " finish() the sparsifier, or remove what was put onto the weight"
            )


def needs(path: str | os.PathLike[str], suffix: str, packages: Sequence[str] = ()) -> Path:
    """The path, which must end so and be in a folder; ValueError also if one of these packages is not installed."""
    checked = check_path("path", path, suffix)
    if missing := [name for name in packages if find_spec(name) is None]:
        raise ValueError(f"path={str(path)!r}: needs {' and '.join(missing)}: pip install 'granet[deploy]'")
    return checked


def check_path(field: str, path: str | os.PathLike[str], suffix: str) -> Path:
    """The path of a file with this suffix, which can be in its folder."""
    checked = Path(path)
    if checked.suffix != suffix:
        raise ValueError(f"{field}={str(path)!r}: must end in {suffix}")
    if not checked.parent.is_dir() or checked.is_dir():
        raise ValueError(f"{field}={str(path)!r}: must be a file in a folder that exists")
    return checked


def tensors_in(inputs: Any) -> list[Tensor]:
    """In the order in which the programs of files take them."""
    return [leaf.contiguous() for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]

"""`granet.deploy.to_onnx`: a model as an ONNX file."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from granet.channels import aside
from granet.deploy.written import Exportable, Written, exportable, needs, tensors_in
from granet.error_line import first_line
from granet.files import atomic

MOST = 2**31 - 2**20
"""The bytes of weights that one file may hold: protobuf takes less than 2 GiB in all."""
EXPORTER = ("onnx", "onnxscript")


def to_onnx(model: nn.Module, example_input: Any, path: str | os.PathLike[str], *, any_batch: bool = True) -> Written:
    """Write a trained model to an ``.onnx`` file, whole or not at all, once it gave the model's outputs in onnxruntime.

    Parameters are in it by their names, bit for bit and so with their zeros: nothing is folded, which runtimes do
    themselves as they load. Zeros make it neither smaller nor, in the runtimes known here, faster.

    Args:
        any_batch: whether the file should take batches of any size; if the model cannot, or if False, it takes the
            example's.
    """
    checked = needs(path, ".onnx", (*EXPORTER, "onnxruntime"))
    export = exportable(model, example_input, any_batch)
    with atomic(checked) as temporary:
        write_onnx(export, temporary)
        return export.written(checked, temporary.stat().st_size, _initializers(temporary), _in_onnxruntime(temporary))


def write_onnx(export: Exportable, path: Path) -> None:
    """ValueError that names the operator that ONNX has not."""
    for name, parameter in export.parameters.items():
        if parameter.dtype == torch.bfloat16:
            raise ValueError(f"model: {name!r} is of bfloat16; must be of float32 or float16, as by model.float()")
    size = sum(parameter.nbytes for parameter in export.parameters.values())
    if size > MOST:
        raise ValueError(f"model: has {size:,} bytes of weights; an ONNX file must have at most {MOST:,}")
    try:
        with aside(), _quiet():
            program = torch.onnx.export(export.program, (), dynamo=True, verbose=False, optimize=False)
            assert program is not None
            _fold(program.model, export.parameters)
            program.save(path)
    except Exception as error:
        raise ValueError(f"model: ONNX cannot hold it: {_why(error, export.program)}") from error


def _fold(model: Any, parameters: Collection[str]) -> None:
    """What is constant is computed now, for less to do and to say at loading; but not what is made of parameters."""
    from onnxscript import optimizer

    def from_no_parameter(node: Any) -> bool | None:
        named = any(value is not None and value.name in parameters for value in node.inputs)
        return False if named else None

    optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=from_no_parameter)
    optimizer.remove_unused_nodes(model)


def _why(error: BaseException, program: ExportedProgram) -> str:
    """The first cause, and the line of the model that calls the operator, or one that is made of it."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    told = [first_line(cause) for cause in reversed(causes)]
    names = re.findall(r"op='aten\.(\w+)'|torch\.ops\.aten\.(\w+)", " ".join(told))
    operator = next((one or other for one, other in names), "")
    for node in program.graph_module.graph.nodes:
        if operator and operator in str(node.target):
            lines = re.findall(r'File "(.*)", line (\d+), in (\w+)\n\s*(.*)', node.meta.get("stack_trace") or "")
            own = [line for line in lines if not line[0].startswith(str(Path(torch.__file__).parent))]
            for file, number, function, code in own[-1:]:
                return f"{told[0]} (in {function}, {Path(file).name}:{number}: {code})"
    return told[0]


def _initializers(path: Path) -> dict[str, Tensor]:
    import onnx

    found = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    return {name: torch.from_numpy(np.array(array)) for name, array in found.items()}


def _in_onnxruntime(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ValueError(f"model: onnxruntime cannot run it: {first_line(error)}") from error
    names = [one.name for one in session.get_inputs()]

    def run(inputs: Any) -> list[Tensor]:
        given = [tensor.numpy() for tensor in tensors_in(inputs)]
        return [torch.from_numpy(array) for array in session.run(None, dict(zip(names, given, strict=True)))]

    return run


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says about packages that it has no use for here."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)

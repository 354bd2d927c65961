"""`granet.deploy.to_openvino`: a model in OpenVINO's own format."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from granet.deploy.onnx_file import EXPORTER, write_onnx
from granet.deploy.written import Written, exportable, needs, tensors_in
from granet.files import atomic


def to_openvino(
    model: nn.Module, example_input: Any, path: str | os.PathLike[str], *, any_batch: bool = True
) -> Written:
    """Write a trained model to an ``.xml`` file and the ``.bin`` file of its weights beside it.

    It comes by way of ONNX, so that parameters keep their names, bits and zeros; OpenVINO folds them as it loads. Both
    files appear once the model's outputs came from them; meanwhile an older pair is away.

    Args:
        any_batch: whether the files should take batches of any size; if the model cannot, or if False, they take the
            example's.
    """
    checked = needs(path, ".xml", (*EXPORTER, "openvino"))
    import openvino

    export = exportable(model, example_input, any_batch)
    core = openvino.Core()
    with tempfile.TemporaryDirectory() as folder, atomic(checked) as temporary:
        write_onnx(export, through := Path(folder) / "model.onnx")
        with atomic(checked.with_suffix(".bin")) as values:
            try:
                openvino.save_model(core.read_model(through), temporary, compress_to_fp16=False)
                temporary.with_suffix(".bin").replace(values)
                found = core.read_model(temporary, values)
                run = core.compile_model(found, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
            except RuntimeError as error:
                why = str(error).strip().splitlines()[-1]  # after places in its own sources
                raise ValueError(f"model: OpenVINO cannot take it: {why}") from error

            def outputs(inputs: Any) -> list[Tensor]:
                results = run([tensor.numpy() for tensor in tensors_in(inputs)])
                return [torch.from_numpy(np.array(results[number])) for number in range(len(results))]

            size = temporary.stat().st_size + values.stat().st_size
            written = export.written(checked, size, _constants(found), outputs)
            checked.unlink(missing_ok=True)  # never one of an old pair beside one of the new
        return written


def _constants(model: Any) -> dict[str, Tensor]:
    nodes = [node for node in model.get_ops() if node.get_type_name() == "Constant"]
    return {node.get_friendly_name(): torch.from_numpy(np.array(node.data)) for node in nodes}

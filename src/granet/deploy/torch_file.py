"""`granet.deploy.to_torch`: a model as a file of torch.export, which needs neither granet nor the model's code."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from granet.channels import aside
from granet.deploy.written import Written, exportable, needs
from granet.files import atomic
from granet.model_inputs import arguments


def to_torch(model: nn.Module, example_input: Any, path: str | os.PathLike[str], *, any_batch: bool = True) -> Written:
    """Write a trained model to a ``.pt2`` file, whole or not at all, once it gave the model's outputs.

    It is an ``ExportedProgram`` in eval mode, with the model's parameters by their names: what AOTInductor and
    ExecuTorch begin with. `torch.export.load` unpickles: load no file of strangers.

    Args:
        any_batch: whether the file should take batches of any size; if the model cannot, or if False, it takes the
            example's.
    """
    checked = needs(path, ".pt2")
    export = exportable(model, example_input, any_batch)
    with atomic(checked) as temporary:
        with aside():
            torch.export.save(export.program, temporary)
            loaded = torch.export.load(temporary)
            module = loaded.module()

        def run(inputs: Any) -> list[Tensor]:
            positional, named = arguments(inputs)
            with torch.no_grad():
                return [leaf for leaf in tree_leaves(module(*positional, **named)) if isinstance(leaf, Tensor)]

        return export.written(checked, temporary.stat().st_size, loaded.state_dict, run)

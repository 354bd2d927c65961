"""`granet.deploy.to_runtime`: a model as a file of granet's own runtime, in one call."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from granet.deploy.compiling import compile
from granet.deploy.outputs import Different, Outputs
from granet.deploy.saved import load, save
from granet.deploy.written import Written, check_path, tensors_in
from granet.files import atomic


def to_runtime(
    model: nn.Module, example_input: Any, path: str | os.PathLike[str], *, dtype: torch.dtype | None = None
) -> Written:
    """Write a trained model to a ``.granet`` file, whole or not at all, once it gave the model's outputs in PyTorch.

    It is what `compile` and `save` write, for the example's batch size; nothing is measured. Batch norms are folded
    into the weights that `Written` counts.

    Args:
        dtype: as for `save`: weights rounded to 16 bits.
    """
    checked = check_path("path", path, ".granet")
    compiled = compile(model, example_input, engine="torch")
    outputs = Outputs(model, example_input, any_batch=False)
    with atomic(checked) as temporary:
        save(compiled, temporary, dtype=dtype)
        fast = load(temporary, engine="torch", memory=1 << 62)  # of a file that is our own

        def run(inputs: Any) -> list[Tensor]:
            found = fast(*tensors_in(inputs))
            return [found] if isinstance(found, Tensor) else list(found)

        try:
            difference = outputs.difference(run, dtype)
        except Different as what:
            raise ValueError(f"model: the file must give the model's outputs, and would not ({what})") from what
        (plan,) = fast.plans
        weights = sum(array.size for array in plan.arrays)
        zeros = weights - sum(int((array.values != 0).sum()) for array in plan.arrays)
        return Written(checked, temporary.stat().st_size, weights, zeros, difference, any_batch=False)

"""`granet.deploy.save` and `load`: a compiled model as one file, and back, without the model or its code."""

from __future__ import annotations

import os

import torch
from torch.utils import _pytree as pytree

from granet.deploy.compiled import Compiled
from granet.deploy.engines import check_dtype, check_engine, check_threads, engine_for
from granet.deploy.plan import Plan
from granet.deploy.plan_file import load_plan, save_plan


def save(compiled: Compiled | Plan, path: str | os.PathLike[str], *, dtype: torch.dtype | None = None) -> None:
    """Write a compiled model, or a plan, to a ``.granet`` file, whole or not at all.

    Args:
        dtype: `torch.float16` or `torch.bfloat16` rounds the weights to two bytes each, but not biases; what is loaded
            computes in `float32` with them. By default nothing is rounded.

    ValueError for a model of which a part runs in PyTorch: that part is code, which a file does not hold.
    """
    if isinstance(compiled, Compiled):
        if compiled.whole is None:
            raise ValueError(
                f"compiled: parts of it run in PyTorch ({', '.join(compiled.outside)}), which no file holds"
            )
        compiled = compiled.whole
    if not isinstance(compiled, Plan):
        raise ValueError(f"compiled={type(compiled).__name__}: must be what granet.deploy.compile gives, or a Plan")
    save_plan(compiled, path, dtype)


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    engine: str | None = None,
    dtype: torch.dtype = torch.float32,
    memory: int = 4 << 30,
) -> Compiled:
    """What was saved, ready to be called with its inputs in a row; it gives a tensor, or a tuple of several.

    Nothing is measured, so that it is ready at once: the engine is the one that `compile` found to be the fastest for
    such a plan on this machine, or else the native one where there is one.

    Args:
        threads, engine, dtype: as for `compile`. In 16 bits a run on random inputs is checked first.
        memory: the most bytes that its weights with their zeros and the values between its operators may take. A file
            of a few bytes can ask for much.

    ValueError for a file that is damaged, of a later version, or asks for more.
    """
    threads = check_threads(threads)
    check_engine(engine)
    check_dtype(dtype)
    plan = load_plan(path)
    if plan.memory > memory:
        raise ValueError(f"{os.fspath(path)}: needs {plan.memory} bytes, memory={memory} are allowed")
    name, run = engine_for(plan, threads, engine, measure=False, dtype=dtype)
    example = [torch.empty(shape, device="meta") for shape in plan.inputs]
    nested_inputs = pytree.tree_structure((tuple(range(len(example))), {}))
    nested_outputs = pytree.tree_structure(0 if len(plan.outputs) == 1 else plan.outputs)
    return Compiled(run, example, nested_inputs, nested_outputs, {"plan_0": name}, plan, [plan])

"""Where tests run: what needs a GPU, or must not have one, is skipped and reported so."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]

COMPILED = [
    pytest.param("torch", "cpu", id="torch-cpu"),
    pytest.param("torch", "cuda", id="torch-cuda", marks=needs_gpu),
    pytest.param("triton", "cuda", id="triton-cuda", marks=[needs_gpu, needs_triton]),
]
"""Plain torch, and the Triton kernels where they run at full speed."""
INTERPRETED = pytest.param(
    "triton", "cpu", id="triton-cpu",
    marks=[needs_triton, pytest.mark.skipif(GPU, reason="the kernels are compiled for the GPU here")],
)  # fmt: skip
"""The kernels in Triton's interpreter, which is slow: for a few hard cases."""
AT_LENGTH = pytest.param(*INTERPRETED.values, id=INTERPRETED.id, marks=[*INTERPRETED.marks, pytest.mark.slow])
on_every_path = pytest.mark.parametrize(("path", "device"), [*COMPILED, INTERPRETED])
on_every_path_at_length = pytest.mark.parametrize(("path", "device"), [*COMPILED, AT_LENGTH])
"""With many cases for the interpreter, which are left to the slow suite."""
on_fast_paths = pytest.mark.parametrize(("path", "device"), COMPILED)

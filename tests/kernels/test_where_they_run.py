"""Kernels are used where there is Triton, on a GPU."""

from importlib.machinery import ModuleSpec

import pytest
import torch

from granet.kernels import has_triton, runs_kernels


@pytest.fixture(autouse=True)
def ask_anew():
    has_triton.cache_clear()
    yield
    has_triton.cache_clear()


@pytest.mark.parametrize("found", [ModuleSpec("triton", None), None])
def test_with_triton_and_without(monkeypatch: pytest.MonkeyPatch, found: ModuleSpec | None) -> None:
    monkeypatch.setattr("granet.kernels.find_spec", lambda name: found)
    assert runs_kernels(torch.device("cuda")) == (found is not None)
    assert not runs_kernels(torch.device("cpu"))

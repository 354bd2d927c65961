"""Kernels are used where they are known to work."""

import sys
from types import SimpleNamespace

import pytest
import torch

from granet.kernels import has_triton, runs_kernels


@pytest.fixture(autouse=True)
def ask_anew():
    has_triton.cache_clear()
    yield
    has_triton.cache_clear()


@pytest.mark.parametrize(
    ("version", "usable"), [("3.5.1", False), ("2.11.0", False), ("3.6.0", True), ("3.10.0+git1", True), ("4.0", True)]
)
def test_old_versions_of_triton_are_left_alone(monkeypatch: pytest.MonkeyPatch, version: str, usable: bool) -> None:
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__=version))
    assert has_triton() == usable
    assert runs_kernels(torch.device("cuda")) == usable
    assert not runs_kernels(torch.device("cpu"))


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    assert not has_triton()

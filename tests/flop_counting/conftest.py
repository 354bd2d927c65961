"""A model of one function, and a mask, for all tests of the counter."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn


class Apply(nn.Module):
    """A function of the input and of parameters `a` and `b`."""

    def __init__(self, function: Callable[[Apply, Tensor], Tensor], a: Tensor, b: Tensor | None = None) -> None:
        super().__init__()
        self.function = function
        self.a = nn.Parameter(a)
        self.b = nn.Parameter(b) if b is not None else None

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def half(*shape: int) -> Tensor:
    """A mask of the first half of the elements, row by row."""
    size = math.prod(shape)
    return (torch.arange(size) < size // 2).view(shape)


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """What the tests share, as one object: conftest cannot be imported."""
    return SimpleNamespace(Apply=Apply, half=half)

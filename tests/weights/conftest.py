"""The models of `examples/coverage.py`: real classes of a library, from tiny configurations."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

SCRIPT = Path(__file__).parents[2] / "examples" / "coverage.py"


@pytest.fixture(scope="session")
def example() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def make(example: dict[str, Any]) -> Callable[[str], nn.Module]:
    def made(name: str) -> nn.Module:
        torch.manual_seed(0)
        model: nn.Module = example["MODELS"][name]()
        return model

    return made

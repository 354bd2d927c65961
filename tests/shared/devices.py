"""Where tests run: what needs a GPU is skipped without one, and reported so."""

from __future__ import annotations

import pytest
import torch

CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))
DEVICES = ["cpu", CUDA]

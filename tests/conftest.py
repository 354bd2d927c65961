"""Without a GPU, Triton's interpreter runs the kernels on the CPU; it must be chosen before they are first imported."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# A busy machine is no error, and the same code passes or fails the same way each time: examples come from a fixed
# seed (`--hypothesis-seed=random` looks further).
settings.register_profile("granet", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("granet")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for other processes come first, so that no worker is left alone with them at the end."""
    items.sort(key=lambda item: item.path.name not in ("test_kill.py", "test_jobs.py"))

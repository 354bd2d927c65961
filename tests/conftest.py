"""How the whole suite runs.

Without a GPU, Triton's interpreter runs the kernels on the CPU; it must be chosen before they are first imported.

Properties are tried on examples from a fixed seed: the same code passes or fails the same way each time, and a busy
machine is no error. `make test` tries a few of each and `make test-slow` all, by the profile `all`.
`pytest --hypothesis-profile=explore tests/test_selection.py` looks further: at other examples each time, a hundred
times as many.
"""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile("all", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", settings.get_profile("all"), max_examples=20)
settings.register_profile("explore", settings.get_profile("all"), derandomize=False, max_examples=10_000)
settings.load_profile("few")  # the command line's choice comes after this one


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for other processes come first, so that no worker is left alone with them at the end."""
    items.sort(key=lambda item: item.path.name not in ("test_kill.py", "test_jobs.py"))

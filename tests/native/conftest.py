"""Tests here are of the sources as they are, whatever is installed."""

import os

import pytest

from native_build import built, why_not


@pytest.fixture(scope="session", autouse=True)
def native_library() -> None:
    if missing := why_not():
        pytest.skip(missing)
    os.environ["GRANET_NATIVE_LIBRARY"] = str(built())

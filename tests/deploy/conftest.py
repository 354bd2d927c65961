"""What is measured is kept for one test only; the native library is built from the sources, where that can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from granet.deploy.compiled import Engine
from granet.deploy.engines import ENGINES
from granet.deploy.plan import Plan
from native_build import built, why_not


@pytest.fixture(autouse=True)
def measured(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for measurements."""
    folder = tmp_path_factory.mktemp("measured")
    monkeypatch.setenv("GRANET_DEPLOY_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def other_engines() -> Iterator[dict[str, Callable[[Plan, int], Engine]]]:
    """All that can be had here besides PyTorch."""
    engines = {name: make for name, make in ENGINES.items() if name != "torch"}
    if find_spec("openvino") is None:
        del engines["openvino"]
    with pytest.MonkeyPatch.context() as patch:
        if why_not():
            del engines["native"]
        else:
            patch.setenv("GRANET_NATIVE_LIBRARY", str(built()))
        yield engines


@pytest.fixture
def native_library(other_engines: dict[str, Callable[[Plan, int], Engine]]) -> None:
    if missing := why_not():
        pytest.skip(missing)

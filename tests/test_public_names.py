"""What `granet` itself offers, and that it is imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

import granet


@pytest.mark.parametrize("name", granet.__all__)
def test_no_name_hides_a_module(name: str) -> None:
    assert hasattr(granet, name)
    assert find_spec(f"granet.{name}") is None


FIRST = "import sys, granet; assert 'torch' not in sys.modules; assert {}; assert 'torch' in sys.modules"


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    ["granet.list_methods()", "callable(granet.methods.register)", "'GraNet' in dir(granet)"],
)
def test_the_first_that_is_asked_for_imports_them(asked: str) -> None:
    subprocess.run([sys.executable, "-c", FIRST.format(asked)], check=True, timeout=300)


def test_a_star_imports_them_all() -> None:
    names: dict[str, object] = {}
    exec("from granet import *", names)
    assert names.keys() - {"__builtins__"} == set(granet.__all__)


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(AttributeError, match=r"^module 'granet' has no attribute 'GraNett'$") as missing:
        granet.GraNett  # noqa: B018
    assert (missing.value.name, missing.value.obj) == ("GraNett", granet)  # for "Did you mean"

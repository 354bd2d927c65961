"""What `granet` itself offers."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import granet


@pytest.mark.parametrize("name", granet.__all__)
def test_no_name_hides_a_module(name: str) -> None:
    assert hasattr(granet, name)
    assert find_spec(f"granet.{name}") is None

"""Some cases of a test in the quick suite, and the others in the slow one."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def slow_but_for(quick: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases, all but the quick ones marked as slow; a tuple is the values of several parameters."""
    several = [case if isinstance(case, tuple) else (case,) for case in cases]
    few = [case if len(case) > 1 else case[0] for case in several]
    return [
        pytest.param(*values, marks=() if case in quick else pytest.mark.slow)
        for values, case in zip(several, few, strict=True)
    ]

"""The page about weights shows what the example prints."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "weights.md").read_text(encoding="utf-8")


def test_the_table_is_what_the_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "coverage.py"))["main"]()
    printed = capsys.readouterr().out
    assert printed.count("\n") == 10
    assert PAGE.endswith(f"\n\n{printed}"), "run: python examples/coverage.py, and put it at the end of the page"

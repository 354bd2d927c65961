"""What `--help` says of options."""

from __future__ import annotations

import ast
from pathlib import Path

import granet.cli


def test_options_are_described_in_one_line_of_source() -> None:
    """tyro keeps the line breaks of a longer one, though the terminal has its own; `arg(help=...)` is for these."""
    broken = []
    desk = Path(__file__).parents[2] / "paper"
    for file in [*Path(granet.cli.__file__).parent.glob("*.py"), desk / "reproduce.py", desk / "publish.py"]:
        for command in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(command, ast.ClassDef):
                told = (one.value for one in command.body[1:] if isinstance(one, ast.Expr))
                broken += [one.value for one in told if isinstance(one, ast.Constant) and "\n" in str(one.value)]
    assert not broken

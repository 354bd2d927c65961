"""What `--help` says of options, and how soon."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import granet.cli
from quick import slow_but_for


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


COMMANDS = ("train", "sweep", "plasticity", "report", "methods", "pretrained", "flops", "data", "bench", "export")


@pytest.mark.parametrize(
    ("arguments", "code", "needed"),
    [
        ("--version", 0, set()),
        ("--help", 0, {"tyro"}),
        *slow_but_for([("train --help", 0, {"tyro"})], [(f"{command} --help", 0, {"tyro"}) for command in COMMANDS]),
        ("trian", 2, {"tyro"}),
        ("train --sparsty 0.9", 2, {"tyro"}),
        ("train --epochs many", 2, {"tyro"}),
    ],
)
def test_help_does_not_wait_for_what_it_does_not_need(arguments: str, code: int, needed: set[str]) -> None:
    """Torch takes more than a second."""
    called = [sys.executable, "-X", "importtime", "-m", "granet", *arguments.split()]
    done = subprocess.run(called, capture_output=True, text=True, timeout=300)
    imported = set(re.findall(r"^import time: .*\| +(\w+)$", done.stderr, flags=re.MULTILINE))
    assert (done.returncode, imported & {"torch", "numpy", "rich", "tyro"}) == (code, needed)

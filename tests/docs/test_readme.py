"""The code of the README runs as it is printed, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
FIRST = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]


def printed_by(code: str) -> tuple[list[str], list[str]]:
    """What the code prints, and what the comments behind its prints say."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    return out.getvalue().splitlines(), re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)


def test_the_first_loop_ends_with_plain_weights_at_the_sparsity_asked_for() -> None:
    printed, said = printed_by(FIRST + "\nassert sparsifier.hidden is None\n")
    assert printed == said == ["0.9"]
    assert FIRST.index("optimizer.step()") < FIRST.index("sparsifier.finish()") < FIRST.index("print(")

"""What `package.module:name` names, and what is said where it names nothing."""

import json
from pathlib import Path

import pytest

from granet.import_path import imported
from refusals import refused


def test_a_name_may_be_inside_a_class() -> None:
    assert imported("model", "json:JSONDecoder.raw_decode") is json.JSONDecoder.raw_decode
    with refused("model", "json:JSONDecoder.loads", json.__file__):
        imported("model", "json:JSONDecoder.loads")  # which the module has, but not the class


def test_a_module_without_a_file() -> None:
    with refused("model", "sys:net", "'sys'", "'net'"):
        imported("model", "sys:net")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\nraise RuntimeError('this')", r"RuntimeError: this; .*inner_part\.py, line 2"),
        ("def f(:", r"SyntaxError: invalid syntax \(inner_part\.py, line 1\)"),
    ],
)
def test_the_line_that_failed_may_be_in_a_module_that_it_imports(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outer_part.py").write_text("import inner_part\n")
    (tmp_path / "inner_part.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ValueError, match=rf"^model='outer_part:net': must be importable, module 'outer_part' is not \({says}\)$"
    ):
        imported("model", "outer_part:net")

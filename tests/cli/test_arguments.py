"""Arguments that cannot be understood: one line that names them, and what is allowed."""

from __future__ import annotations

import pytest

from granet.cli import main
from granet.cli.arguments import _in_one_line
from refusals import Commands

WRONG = [
    ("train --sparsity abc", ["--sparsity", "'abc'", "FLOAT", "; see granet train --help"]),
    ("train --epochs many", ["--epochs", "'many'", "INT", "; see granet train --help"]),
    ("train --seed None", ["--seed", "'None'", "INT"]),
    ("flops resnet20 --input 3x8x8 --sparsity abc", ["--sparsity", "'abc'", "float", "; see granet flops --help"]),
    ("train --sparsty 0.9", ["--sparsty, 0.9 (did you mean --sparsity FLOAT?); see granet train --help"]),
    ("train --zzz", ["--zzz", "; see granet train --help"]),
    ("train --epochs", ["--epochs", "; see granet train --help"]),
    ("train one two", ["two", "; see granet train --help"]),
    ("flops", ["granet flops", "--input", "; see granet flops --help"]),
    ("data chck afile", ["'chck'", "'check'", "; see granet data --help"]),
    ("--verbose", ["--verbose", "; see granet --help"]),
    ("trian", ["command='trian': must be one of train, sweep, ", "(did you mean 'train'?); see granet --help"]),
    ("", ["command='': must be one of train, sweep, "]),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG, ids=[arguments for arguments, _ in WRONG])
@pytest.mark.parametrize("columns", ["40", "80", "400"])
def test_what_is_wrong_is_one_line(
    arguments: str, says: list[str], columns: str, refused: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    refused(arguments, None, ..., *says)


ASCII = """\
 Unrecognized options
 --------------------
  Unrecognized
  options: --a, b
  ------------------
  Perhaps you meant:
      --c INT
          Help.
  ------------------
  For full helptext, run granet --help

"""
COLOURED = """\
╭─ \x1b[1mUnrecognized options\x1b[22m ─╮
│ \x1b[31mUnrecognized\x1b[0m           │
│ options: --a, b                       │
│ ───────────────────────────────────── │
│ Perhaps you meant:                    │
│     --c INT                           │
╰───────────────────────────────────────╯
"""


@pytest.mark.parametrize("box", [ASCII, COLOURED], ids=["ASCII", "colours"])
def test_whatever_the_terminal_can_show(box: str) -> None:
    assert _in_one_line(box) == "Unrecognized options: --a, b (did you mean --c INT?)"


def test_another_layout_is_one_line_too() -> None:
    assert _in_one_line("error:\n") == "error:"


@pytest.mark.parametrize(("arguments", "word"), [("train --help", "--initial-sparsity"), ("--help", "pretrained")])
def test_help_is_no_error(arguments: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    out, err = capsys.readouterr()
    assert not ended.value.code and err == "" and word in out

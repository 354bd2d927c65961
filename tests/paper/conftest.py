"""A `python -m paper` command that must be refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paper.__main__ import main
from refusal import in_an_empty_folder


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What it says, which is one line, in a folder that has but a file `afile`."""
    return in_an_empty_folder(main, tmp_path, monkeypatch, capsys)

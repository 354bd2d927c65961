"""`python -m paper` commands that must be refused."""

from pathlib import Path

import pytest

from paper.__main__ import main
from refusals import Commands


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(main, tmp_path, monkeypatch, capsys, "python -m paper")

"""`granet` commands that must be refused."""

from pathlib import Path

import pytest

from granet.cli import main
from refusals import Commands


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(main, tmp_path, monkeypatch, capsys)

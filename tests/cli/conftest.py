"""A command that must be refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from granet.cli import main


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command says that must end with one line and exit code 2, in an empty folder but for a file `afile`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").touch()

    def run(*arguments: object) -> str:
        threads = torch.get_num_threads()
        try:
            with pytest.raises(SystemExit) as stop:
                main([str(argument) for argument in arguments])
        finally:
            torch.set_num_threads(threads)
        said = capsys.readouterr().err
        assert stop.value.code == 2 and said.count("\n") == 1
        return said

    return run

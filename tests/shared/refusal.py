"""Commands that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch


def in_an_empty_folder(
    main: Callable[[list[str]], None],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """What a command says that must end with one line and exit code 2, in a folder that has but a file `afile`."""
    monkeypatch.chdir(folder)
    (folder / "afile").touch()

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

"""How the command line shows warnings."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from granet.training import Recipe, RunDir


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "granet", *arguments]
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(called, cwd=cwd, env=settings, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_warning_of_ours_is_one_line_and_others_are_as_python_shows_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import warnings\nfrom torch import nn\n\n\ndef net(num_classes):\n"
        "    warnings.warn('slow', stacklevel=1)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    run = RunDir.find(tmp_path / "runs", Recipe(method="static", model="mine:net", epochs=1))
    run.make()
    checkpoint = run.path / "checkpoint-00000001.pt"
    checkpoint.write_bytes(b"half a file")
    options = "--method static --model mine:net --epochs 1 --no-dense-twin"
    done = command("train", *options.split(), cwd=tmp_path)
    assert done.returncode == 0 and run.summary is not None
    ours = f"granet: {checkpoint.relative_to(tmp_path)} is damaged, so training starts anew\n"
    theirs = f"{tmp_path / 'mine.py'}:6: UserWarning: slow\n  warnings.warn('slow', stacklevel=1)\n"
    assert done.stderr == ours + theirs


@pytest.mark.slow
def test_a_warning_in_a_process_of_a_sweep_is_one_line_too(tmp_path: Path) -> None:
    run = RunDir.find(tmp_path / "runs", Recipe(method="dense", epochs=1))
    run.make()
    checkpoint = run.path / "checkpoint-00000001.pt"
    checkpoint.write_bytes(b"half a file")
    (tmp_path / "grid.toml").write_text('method = "dense"\nepochs = 1\n')
    done = command("sweep", "grid.toml", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0 and run.summary is not None
    assert done.stderr == f"granet: {checkpoint.relative_to(tmp_path)} is damaged, so training starts anew\n"


def test_how_warnings_look_is_changed_for_a_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from granet.cli import main
    from granet.cli.methods import Methods

    usual, during = warnings.formatwarning, []

    def run(*_: object) -> None:
        during.append(warnings.formatwarning)
        raise ValueError("why")

    monkeypatch.setattr(Methods, "run", run)
    with pytest.raises(SystemExit):
        main(["methods"])
    assert warnings.formatwarning is usual and usual not in during
    (shown,) = during
    place = ("file.py", 3, "x = 1")
    assert shown(UserWarning("granet: a"), UserWarning, *place) == "granet: a\n"
    for other in (UserWarning("a"), DeprecationWarning("granet: a")):
        assert shown(other, type(other), *place) == usual(other, type(other), *place)

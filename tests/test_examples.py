"""The example runs, and goes on after a kill -9 to the same file."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import granet

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[1] / "examples" / "own_script.py"
PACKAGE = str(Path(granet.__file__).parents[1])


def script(folder: Path) -> subprocess.Popen[str]:
    """The example with fewer epochs, at work in that folder."""
    folder.mkdir(exist_ok=True)
    text = SOURCE.read_text(encoding="utf-8")
    assert text.count("EPOCHS = 20\n") == 1
    (folder / "script.py").write_text(text.replace("EPOCHS = 20\n", "EPOCHS = 5\n"), encoding="utf-8")
    paths = os.pathsep.join(filter(None, (PACKAGE, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_script_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole = script(tmp_path / "whole")
    printed, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0
    assert "epoch  4" in printed and "sparsity 0.9500\ntest accuracy" in printed

    with script(tmp_path / "killed") as killed:
        assert killed.stdout is not None
        too_long = threading.Timer(300, killed.terminate)
        too_long.start()
        for line in killed.stdout:
            if line.startswith("epoch  1"):
                killed.send_signal(signal.SIGKILL)
        too_long.cancel()
    assert killed.returncode == -signal.SIGKILL
    resumed = script(tmp_path / "killed")
    again, _ = resumed.communicate(timeout=300)
    assert again.startswith("model goes on from epoch ") and again.splitlines()[-1] == printed.splitlines()[-1]
    files = [tmp_path / folder / "own_script.safetensors" for folder in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert not list(tmp_path.glob("*/*.pt"))

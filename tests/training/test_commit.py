"""The commit that a run folder names: that of the checkout, what the variable says, or nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from granet.training import Recipe, RunDir


def commit(out: Path) -> str:
    """What `config.json` of a new run says."""
    run = RunDir.find(out, Recipe())
    run.make()
    run.describe(Recipe(), torch.device("cpu"), {})
    return str(run.environment["commit"])


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that granet seems to be in, without a repository around it."""
    monkeypatch.delenv("GRANET_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    path = tmp_path / "checkout" / "environment.py"
    path.parent.mkdir()
    path.write_text("1")
    monkeypatch.setattr("granet.training.environment.__file__", str(path))
    return path


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_it_is_that_of_the_checkout_and_says_whether_files_differ(module: Path, tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        own = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(module.parent), *own, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    assert commit(tmp_path / "before") == ""
    for arguments in (["init"], ["add", "."], ["commit", "-m", "first"], ["tag", "-m", "a name", "v1"]):
        git(*arguments)
    assert commit(tmp_path / "clean") == git("rev-parse", "--short=12", "HEAD")  # whatever its tags are
    module.write_text("2")
    assert commit(tmp_path / "changed") == git("rev-parse", "--short=12", "HEAD") + "-dirty"


def test_a_variable_says_it_where_there_is_no_repository(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRANET_COMMIT", "0123abc")
    assert commit(tmp_path) == "0123abc"


def test_without_git_nothing_is_said(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(tmp_path) == ""

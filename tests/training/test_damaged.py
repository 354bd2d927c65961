"""Run folders that somebody damaged: one line that names the file, and what is wrong with it."""

import json
from pathlib import Path

import pytest
import torch

from granet.cli import main
from granet.data import load
from granet.training.fingerprint import fingerprint
from granet.training.recipe import Recipe
from granet.training.run import Run
from granet.training.rundir import RunDir
from refusals import refused

NOISE = b"\xff\xfe\x00\x93"
DAMAGED = [
    ("config.json", b"", "Expecting value"),
    ("config.json", NOISE, "codec can't decode"),
    ("config.json", b"[]", "list indices must be"),
    ("config.json", b"{}", "no 'recipe'"),
    ("config.json", b'{"recipe": {"epochs": "3"}}', "epochs='3': must be of type int"),
    ("config.json", b'{"recipe": {"method_fields": []}}', "has no attribute"),
    ("summary.json", b"", "Expecting value"),
    ("summary.json", NOISE, "codec can't decode"),
    ("summary.json", b'{"a": 1}', "unexpected keyword argument 'a'"),
    ("summary.json", b"[1]", "must be a mapping"),
]


@pytest.mark.parametrize(("name", "content", "says"), DAMAGED)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    run = RunDir.find(tmp_path, Recipe())
    run.make()
    run.describe(Recipe(), torch.device("cpu"), fingerprint(load("digits")))
    (run.path / name).write_bytes(content)
    with refused(run.path / name, ..., says, unchanged=(tmp_path,)):
        _ = RunDir.find(tmp_path, Recipe()).summary


def test_a_summary_of_text_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    numbers = ("sparsity_asked", "sparsity", "parameters", "nonzero", "flops_ratio", "seconds")
    rest = "".join(f', "{name}": 1' for name in numbers)
    path.write_text(f'{{"test_accuracy": "high", "best_test_accuracy": null, "best_epoch": null{rest}}}')
    with refused(Path("summary.json"), ..., "test_accuracy='high'"):
        _ = RunDir(tmp_path).summary


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_the_commands_say_it_in_one_line(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir.find(tmp_path, Recipe())
    run.make()
    run.describe(Recipe(), torch.device("cpu"), fingerprint(load("digits")))
    (run.path / name).write_bytes(b"")
    grid = tmp_path / "grid.toml"
    grid.write_text("sparsity = 0.9\nevery = '1ep'\n")
    for command in (["train"], ["sweep", str(grid), "--dry-run"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--out", str(tmp_path)])
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert said.startswith(f"granet: {run.path / name}: is damaged") and said.count("\n") == 1


def swept(out: Path) -> list[str]:
    """The command of a sweep of one run, which is trained already."""
    grid = out / "grid.toml"
    grid.write_text('method = "static"\nsparsity = 0.5\nepochs = 2\nbatch_size = 256\n')
    recipe = Recipe(method="static", method_fields={"sparsity": 0.5}, epochs=2, batch_size=256)
    list(Run(recipe, load("digits"), torch.device("cpu"), out).epochs())
    return ["sweep", str(grid), "--out", str(out)]


def test_damaged_epochs_of_a_finished_run_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = swept(tmp_path)
    (path,) = tmp_path.glob("*/metrics.jsonl")
    whole = path.read_bytes()
    for content, says in ((whole[:-40], f"{path}, line 2: is damaged"), (b"", f"{path}: must have the epochs")):
        path.write_bytes(content)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 2 and capsys.readouterr().err.startswith(f"granet: {says}")


@pytest.mark.slow
def test_a_damaged_environment_of_a_finished_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = swept(tmp_path)
    (path,) = tmp_path.glob("*/config.json")
    config = json.loads(path.read_text())
    for environment, says in (({}, "no 'device'"), ({"device": "cpu", "torch": 2.13}, "torch=2.13 is not a text")):
        path.write_text(json.dumps(config | {"environment": environment}))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(command)
        said = capsys.readouterr().err
        assert ended.value.code == 2 and said.count("\n") == 1
        assert said.startswith(f"granet: {path}: is damaged") and says in said


def test_epochs_are_counted_by_whole_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that was killed may have left half a line, and a crash of the machine anything."""
    grid = tmp_path / "grid.toml"
    grid.write_text("sparsity = 0.9\nevery = '1ep'\n")
    run = RunDir.find(tmp_path, Recipe())
    run.make()
    run.describe(Recipe(), torch.device("cpu"), fingerprint(load("digits")))
    for left in (b"", b'{"epoch": 3', b"\xff\xfe"):
        (run.path / "metrics.jsonl").write_bytes(b"{}\n{}\n" + left)
        main(["sweep", str(grid), "--out", str(tmp_path), "--dry-run"])
        assert capsys.readouterr().out.split() == ["epoch", "2", run.path.name]

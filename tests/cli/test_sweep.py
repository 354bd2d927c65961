"""Commands that train many runs: a wrong option is told once, not by each run, and finished runs are read once."""

import csv
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from granet.cli import main
from granet.cli.console import create_console
from granet.cli.many_runs import train_all
from granet.data import ImageSet, load
from granet.studies.jobs import Event, Place
from granet.studies.results import row_of
from granet.studies.spec import read_spec
from granet.training import EpochRecord, Recipe, RunDir, Summary
from granet.training.fingerprint import fingerprint
from granet.training.rundir import run_name
from quick import slow_but_for
from refusals import Commands

RECIPES = Path(__file__).parents[2] / "recipes"
COMMANDS = {
    "train": ["train"],
    "sweep": ["sweep", str(RECIPES / "zoo-digits.toml")],
    "plasticity": ["plasticity", str(RECIPES / "studies" / "plasticity-digits.toml")],
}
EPOCH = EpochRecord(1, 1, 1.0, 0.1, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5)
SUMMARY = Summary(0.5, 0.5, 1, 0.5, 0.5, 10, 5, 0.5, 1.0)


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        *((command, "checkpoint_every", value) for command in COMMANDS for value in (-1.0, float("nan"))),
        ("train", "workers", -1),
        ("sweep", "workers", -1),
        ("sweep", "packed", 0),
        ("plasticity", "threads", -2),
    ],
)
def test_a_wrong_option_is_refused_before_the_first_run(
    command: str, option: str, value: float, refused: Commands
) -> None:
    refused([*COMMANDS[command], f"--{option.replace('_', '-')}={value}"], option, value)


@pytest.mark.parametrize("written", slow_but_for([""], ["packed = 2\n", ""]))
def test_options_and_the_file_say_how_runs_are_trained(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not said is what is usual."""
    (tmp_path / "grid.toml").write_text(f'{written}method = "static"\nsparsity = 0.5\n')
    (tmp_path / "study.toml").write_text(f"{written}checkpoints = [1]\nepochs = 2\ncontinue_epochs = 1\n")
    found: list[tuple[Place, int]] = []
    threads: list[int] = []

    def train(console: object, recipes: object, place: Place, packed: int) -> Iterator[Recipe]:
        found.append((place, packed))
        return iter(())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # which is not for the digits
    monkeypatch.setattr("granet.cli.plasticity.Plasticity._write", lambda *_: None)
    cpu, out, usual = torch.device("cpu"), Path("out"), 2 if written else 6
    options = ["--out", "out", "--data-dir", "images", "--checkpoint-every", "7", "--packed", "3"]
    options += ["--threads", "5", "--device", "cpu:0"]
    monkeypatch.setattr("granet.cli.many_runs.train_all", train)
    for command, file, workers in (("sweep", "grid.toml", 4), ("plasticity", "study.toml", None)):
        main([command, file, "--out", "out"])
        main([command, file, *options, *(["--workers", "4"] if workers else [])])
        told = Place(torch.device("cpu:0"), out, Path("images"), workers, 7.0)
        assert found == [(Place(cpu, out), usual), (told, 3)] and threads == [1, 5]
        found.clear()
        threads.clear()


@pytest.mark.parametrize("command", ["sweep", "plasticity"])
def test_images_that_are_not_there_are_told_before_the_first_run(
    command: str, tmp_path: Path, refused: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sweep.toml").write_text('data = "cifar10"\nmethod = "dense"\n')
    (tmp_path / "plasticity.toml").write_text('data = "cifar10"\ncheckpoints = [1]\nepochs = 2\ncontinue_epochs = 1\n')
    monkeypatch.setattr("granet.cli.many_runs.train_all", None)
    refused(f"{command} {command}.toml --data-dir {tmp_path} --device cpu", Path("cifar10"), ..., tmp_path)


def outcomes(events: list[Event], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recipe]:
    """What `train_all` hands on where these events happen."""
    monkeypatch.setattr("granet.cli.many_runs.run_jobs", lambda *_: iter(events))
    recipes = list(dict.fromkeys(event.recipe for event in events))
    return train_all(create_console(), recipes, Place(torch.device("cpu"), tmp_path), 2)


def test_a_run_is_handed_on_when_it_is_done_and_failures_are_named_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = Recipe(seed=1), Recipe(seed=2)
    events = [Event(good, EPOCH), Event(bad, error="ValueError: no such\nthing"), Event(good)]
    trained = outcomes(events, monkeypatch, tmp_path)
    assert next(trained) is good
    with pytest.raises(SystemExit) as ended:
        list(trained)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"granet: {run_name(bad)} failed: ValueError: no such\nthing\n"


def test_a_run_that_is_done_is_so_whoever_trains_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = Recipe(method="dense", method_fields={})
    branch = replace(Recipe(method_fields={"sparsity": 0.5}), parent=run_name(parent), branch_epoch=1)
    assert list(outcomes([Event(parent, elsewhere=True), Event(branch)], monkeypatch, tmp_path)) == [branch]


@pytest.mark.parametrize("command", ["sweep", "plasticity"])
def test_a_dry_run_trains_and_writes_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("granet.cli.many_runs.train_all", None)
    main([*COMMANDS[command], "--dry-run"])
    assert {line[:14] for line in capsys.readouterr().out.splitlines()} == {f"{'to do':<14}"}
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_how_far_each_run_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipes = [Recipe(method="static", method_fields={"sparsity": 0.5}, seed=seed) for seed in range(4)]
    for recipe in recipes[:3]:
        run = RunDir.find(tmp_path, recipe)
        run.make()
        run.describe(recipe, torch.device("cpu"), {})
    RunDir.find(tmp_path, recipes[1]).begin([EPOCH])
    RunDir.find(tmp_path, recipes[2]).finish(None, SUMMARY)
    (tmp_path / "grid.toml").write_text('method = "static"\nsparsity = 0.5\nseed = [0, 1, 2, 3]\n')
    main(["sweep", str(tmp_path / "grid.toml"), "--out", str(tmp_path), "--dry-run"])
    names = map(run_name, recipes)
    states = ("epoch 0", "epoch 1", "done", "to do")
    lines = [f"{state:<14}{name}" for state, name in zip(states, names, strict=True)]
    assert capsys.readouterr().out.splitlines() == lines


def finished(grid: Path) -> tuple[Recipe, ...]:
    """The runs of a grid, with the folders that they leave beside it when they are done."""
    for recipe in (recipes := read_spec(grid).recipes):
        run = RunDir.find(grid.parent, recipe)
        run.make()
        run.describe(recipe, torch.device("cpu"), fingerprint(load("digits")))
        run.begin([EPOCH])
        run.finish(None, SUMMARY)
    return recipes


def test_results_are_saved_as_runs_are_done_in_the_order_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And once more when it is stopped, for those that ended meanwhile."""
    grid, table, saved = tmp_path / "grid.toml", tmp_path / "results.csv", []
    grid.write_text('method = "static"\nsparsity = 0.5\nlr = [0.1, 0.2, 0.3]\n')
    recipes = finished(grid)

    def rows() -> list[str]:
        with table.open() as file:
            return [row["settings"] for row in csv.DictReader(file)]

    def train(*_: object) -> Iterator[Recipe]:
        for recipe in (recipes[2], recipes[0]):
            yield recipe
            saved.append(rows())
        raise KeyboardInterrupt

    monkeypatch.setattr("granet.cli.many_runs.train_all", train)
    with pytest.raises(SystemExit):
        main(["sweep", str(grid), "--out", str(tmp_path)])
    assert [*saved, rows()] == [["lr=0.3"], ["lr=0.1", "lr=0.3"], ["lr=0.1", "lr=0.2", "lr=0.3"]]


@pytest.mark.parametrize(("width", "dense"), [("1.0", "dense"), ("[1.0, 0.5]", "full-width dense network")])
def test_the_table_says_which_dense_network_shares_are_of(
    width: str, dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(f'model = "resnet20"\nmethod = "static"\nsparsity = 0.5\nwidth = {width}\n')
    finished(grid)
    main(["sweep", str(grid), "--out", str(tmp_path)])
    assert f"FLOPs of inference, {dense} = 1" in " ".join(capsys.readouterr().out.split())


def test_finished_runs_are_not_all_read_again_for_each_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For hundreds of them that would take minutes before anything is trained."""
    grid = tmp_path / "grid.toml"
    grid.write_text('method = "static"\nsparsity = 0.5\nseed = [0, 1, 2, 3, 4]\n')
    recipes = finished(grid)
    read: Counter[Recipe] = Counter()

    def counted(recipe: Recipe, out: Path) -> dict[str, object] | None:
        read[recipe] += 1
        return row_of(recipe, out)

    looked_at: list[ImageSet] = []
    monkeypatch.setattr("granet.studies.results.row_of", counted)
    monkeypatch.setattr("granet.cli.many_runs.fingerprint", lambda data: looked_at.append(data) or fingerprint(data))
    main(["sweep", str(grid), "--out", str(tmp_path)])
    assert len(looked_at) == 1  # and so are the images
    assert read == dict.fromkeys(recipes, 2)  # as it is handed on, and for the table at the end
    assert (tmp_path / "results.csv").read_text().count("\n") == 1 + len(recipes)


@pytest.mark.slow
def test_a_run_that_another_process_trains_is_left_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no failure of this command, and neither is a run that would start from it."""
    theirs, ours = (Recipe(method="dense", method_fields={}, epochs=1, batch_size=512, seed=seed) for seed in (0, 1))
    after = replace(theirs, method="lth", method_fields={"sparsity": 0.5}, parent=run_name(theirs))
    folder = RunDir.find(tmp_path, theirs)
    folder.make()
    with folder.locked():
        trained = list(train_all(create_console(), [theirs, after, ours], Place(torch.device("cpu"), tmp_path), 1))
    assert trained == [ours]
    said = capsys.readouterr()
    for recipe in (theirs, after):
        assert f"{run_name(recipe)} left to another process" in said.out
    assert "2 of 3 runs are left to another process" in said.out and said.err == ""

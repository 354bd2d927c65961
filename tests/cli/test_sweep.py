"""Commands that train many runs: a wrong option is told once, not by each run, and finished runs are read once."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from granet.cli import main, sweep
from granet.cli.console import create_console
from granet.cli.many_runs import train_all
from granet.data import load
from granet.studies.jobs import Place
from granet.studies.results import row_of
from granet.studies.spec import read_spec
from granet.training import EpochRecord, Recipe, RunDir, Summary
from granet.training.fingerprint import fingerprint
from granet.training.rundir import run_name

RECIPES = Path(__file__).parents[2] / "recipes"
COMMANDS = {
    "train": ["train"],
    "sweep": ["sweep", str(RECIPES / "zoo-digits.toml")],
    "plasticity": ["plasticity", str(RECIPES / "studies" / "plasticity-digits.toml")],
}
SECONDS = "must be 0 or more seconds"


@pytest.mark.parametrize(
    ("command", "option", "value", "allowed"),
    [
        *((command, "checkpoint_every", value, SECONDS) for command in COMMANDS for value in (-1.0, float("nan"))),
        ("train", "workers", -1, "must be 0 or more processes"),
        ("sweep", "workers", -1, "must be 0 or more processes"),
        ("sweep", "packed", 0, "must be 1 or more"),
        ("plasticity", "threads", -2, "must be from 1 to 1024, a number of CPU threads"),
    ],
)
def test_a_wrong_option_is_refused_before_the_first_run(
    command: str, option: str, value: float, allowed: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    said = refused(*COMMANDS[command], f"--{option.replace('_', '-')}={value}")
    assert said == f"granet: {option}={value!r}: {allowed}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["afile"]


def test_finished_runs_are_not_all_read_again_for_each_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For hundreds of them that would take minutes before anything is trained."""
    grid = tmp_path / "grid.toml"
    grid.write_text('method = "static"\nsparsity = 0.5\nseed = [0, 1, 2, 3, 4]\n')
    for recipe in (recipes := read_spec(grid).recipes):
        run = RunDir.find(tmp_path, recipe)
        run.make()
        run.describe(recipe, torch.device("cpu"), fingerprint(load("digits")))
        run.begin([EpochRecord(1, 1, 1.0, 0.1, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5)])
        run.finish(None, Summary(0.5, 0.5, 1, 0.5, 0.5, 10, 5, 0.5, 1.0))
    read: Counter[Recipe] = Counter()

    def counted(recipe: Recipe, out: Path) -> dict[str, object] | None:
        read[recipe] += 1
        return row_of(recipe, out)

    monkeypatch.setattr(sweep, "row_of", counted)
    main(["sweep", str(grid), "--out", str(tmp_path)])
    assert read == dict.fromkeys(recipes, 2)  # as it is handed on, and for the table at the end
    assert (tmp_path / "results.csv").read_text().count("\n") == 1 + len(recipes)


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

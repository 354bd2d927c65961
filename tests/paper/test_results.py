"""Rows of finished runs, and the files that hold them."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from granet.data import load
from granet.studies.results import COLUMNS, row_of
from granet.training import Recipe, Run
from granet.training.records import EpochRecord, Summary
from granet.training.rundir import RunDir
from paper.plasticity_table import read_point
from paper.registry import TABLES
from paper.reproducible import Selection
from paper.results import keep, read_results
from refusals import refused

ROW: dict[str, object] = {**dict.fromkeys(COLUMNS, 0.5), "device": "cpu", "torch": "2.10.0"}
"""Of the results, with a value in each column."""
OUTCOME = Summary(0.9212345, 0.9323456, 4, 0.3, 0.9000012345, 100, 10, 0.123456, 12.34, train_flops=0.654321)


def write_rows(path: Path, *rows: dict[str, object]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)


def found_run(monkeypatch: pytest.MonkeyPatch, summary: Summary | None, *epochs: tuple[float, float]) -> None:
    """Every recipe finds a run with this outcome, whose epochs had these test accuracies and sparsities."""
    records = [
        EpochRecord(epoch, 0, 0.0, 0.1, 0.0, 0.3 + 0.2 * (epoch in (1, 3)), None, test, sparsity, sparsity)
        for epoch, (test, sparsity) in enumerate(epochs, start=1)
    ]
    environment = {"device": "cpu", "torch": "2.10.0"}
    found = SimpleNamespace(path=Path("name"), summary=summary, records=records, environment=environment)
    monkeypatch.setattr(RunDir, "find", lambda out, recipe: found)


def test_a_row_tells_the_last_the_best_and_the_papers_epoch_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run branches after epoch 1, which is not its own; epoch 2 is denser than the others."""
    recipe = Recipe(parent="trunk", branch_epoch=1, epochs=5, seed=7, method_fields={"sparsity": 0.9})
    found_run(monkeypatch, OUTCOME, (0.99, 0.9), (0.98, 0.5), (0.91, 0.9), (0.9434567, 0.9), (0.9212345, 0.9))
    row = row_of(recipe, Path())
    assert (row["accuracy_last"], row["accuracy_best"], row["accuracy_as_paper"]) == (92.123, 93.235, 94.346)
    assert (row["test_flops"], row["train_flops"], row["seconds"]) == (0.12346, 0.65432, 12.3)
    assert row["largest_fall"] == 20.0
    assert (row["sparsity_asked"], row["sparsity_achieved"]) == (0.9, 0.90000123)
    assert (row["method"], row["model"], row["data"]) == ("granet", "digits_net", "digits")
    assert (row["seed"], row["epochs"], row["commit"], row["run"]) == (7, 5, "", "name")


def test_a_row_of_what_a_run_may_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation part, counted FLOPs, a sparsity among its fields, the whole width."""
    narrow = Recipe(model="vgg19", width=0.25, method="dense", method_fields={})
    found_run(monkeypatch, replace(OUTCOME, best_test_accuracy=None, best_epoch=None, train_flops=None), (0.9, 0.9))
    row = row_of(narrow, Path())
    assert (row["accuracy_best"], row["train_flops"], row["accuracy_as_paper"]) == (None, None, 90.0)
    assert (row["sparsity_asked"], row["model"]) == (0.3, "vgg19 x 0.25")
    found_run(monkeypatch, OUTCOME)
    with refused(Path("metrics.jsonl")):
        row_of(narrow, Path())
    found_run(monkeypatch, None)
    assert row_of(narrow, Path()) is None


@pytest.mark.parametrize(("text", "lacks"), [("", "method"), ("method,seed\ngmp,0\n", "model")])
def test_a_file_of_results_has_all_columns(tmp_path: Path, text: str, lacks: str) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"^results=.*: mine\.csv has no column '{lacks}'$"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (b"gmp,1,\xff,b\n", r"mine\.csv is damaged \('utf-8' codec can't decode byte 0xff .*\)"),
        (b"gmp,1", r"mine\.csv, line 3: must have a value for each of the columns"),
        (b"<<<<<<< HEAD\n", r"mine\.csv, line 3: must have a value for each of the columns"),
        (b'"' + b"x" * 140_000, r"mine\.csv, after line 2: field larger than field limit \(131072\)"),
        (b"gmp" * 40 + b",1" * 40 + b"\n", r"mine\.csv, line 3: must have a value for each of the columns"),
    ],
)
def test_a_damaged_file_of_results_is_named(tmp_path: Path, left: bytes, says: str) -> None:
    """Skipped in silence, a run would be trained again, and its row lost."""
    path = tmp_path / "mine.csv"
    write_rows(path, {"run": "a"})
    path.write_bytes(path.read_bytes() + left)
    with pytest.raises(ValueError, match=f"^results=.*: {says}$"):
        read_results(tmp_path)


def test_a_row_without_the_name_of_its_run_is_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "mine.csv", {"run": "a"}, {"run": ""})
    with pytest.raises(ValueError, match=r"mine\.csv, line 3: run='': must be the name of a run$"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("column", "value", "allowed"),
    [
        ("accuracy_last", "abc", "from 0 to 100"),
        ("accuracy_last", "", "from 0 to 100"),
        ("accuracy_last", "nan", "from 0 to 100"),
        ("accuracy_as_paper", "9353", "from 0 to 100"),
        ("sparsity_achieved", "-0.1", "from 0 to 1"),
        ("test_flops", "", "from 0"),
    ],
)
def test_a_number_that_cannot_be_a_result_is_named(tmp_path: Path, column: str, value: str, allowed: str) -> None:
    write_rows(tmp_path / "mine.csv", {"run": "a", "accuracy_best": "", "train_flops": ""}, {"run": "b", column: value})
    told = rf"mine\.csv, line 3: {column}='{value}': must be a number {allowed}"
    with pytest.raises(ValueError, match=f"^results=.*: {told}$"):
        read_results(tmp_path)


@pytest.mark.parametrize("other", ["mine.csv", "other.csv"])
def test_a_run_that_stands_in_the_results_twice_is_named(tmp_path: Path, other: str) -> None:
    """Otherwise the last one read would win."""
    write_rows(tmp_path / "other.csv", {"run": "a"})
    write_rows(tmp_path / "mine.csv", *[{"run": "a"}] * (1 + (other == "mine.csv")))
    where = "mine.csv, line 3" if other == "mine.csv" else "other.csv, line 2"
    with pytest.raises(ValueError, match=rf"{where}: run='a' must stand in the results once; mine\.csv has it too$"):
        read_results(tmp_path)


def test_a_file_of_results_holds_the_runs_of_one_device_and_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paper.results.log", lambda folder: {})
    for run, device in (("one", "NVIDIA H200 NVL"), ("two", "cpu")):
        row = {**ROW, "run": run, "device": device, "torch": "2.10.0+cu130"}
        monkeypatch.setattr("paper.results.row_of", Mock(return_value=row))
        keep(Recipe(), tmp_path / "runs", tmp_path, "zoo")
    files = {
        path.name: [row["run"] for row in csv.DictReader(path.read_text().splitlines())]
        for path in tmp_path.glob("*.csv")
    }
    assert files == {"zoo-h200-nvl-torch2.10.csv": ["one"], "zoo-cpu-torch2.10.csv": ["two"]}


def test_runs_that_end_at_the_same_moment_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the same table is run in two processes, on a GPU each."""
    monkeypatch.setattr("paper.results.log", lambda folder: {})
    monkeypatch.setattr("paper.results.row_of", lambda recipe, out: {**ROW, "run": f"run-{recipe.seed}"})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: keep(Recipe(seed=seed), tmp_path, tmp_path / "results", "zoo"), range(24)))
    assert set(read_results(tmp_path / "results")) == {f"run-{seed}" for seed in range(24)}


@pytest.mark.slow
def test_a_finished_run_is_kept_with_those_of_before(tmp_path: Path) -> None:
    table = TABLES["cifar-main"](Selection())
    for seed in (0, 1, 1):  # the last is there already
        recipe = Recipe(method_fields={"sparsity": 0.9, "every": 1}, epochs=1, batch_size=256, seed=seed)
        list(Run(recipe, load("digits"), torch.device("cpu"), tmp_path / "runs").epochs())
        table.keep(recipe, tmp_path / "runs", tmp_path / "results")
    (path,) = (tmp_path / "results").glob("*.csv")
    version = ".".join(torch.__version__.split(".")[:2])
    assert path.name == f"cifar-main-cpu-torch{version}.csv"
    with path.open() as file:
        found = list(csv.DictReader(file))
    assert [row["seed"] for row in found] == ["0", "1"]
    for row in found:
        log = json.loads((tmp_path / "results" / "logs" / f"{row['run']}.json").read_text())
        assert log["summary"]["test_accuracy"] == pytest.approx(float(row["accuracy_last"]) / 100, abs=1e-5)
        assert len(log["epochs"]) == 1 and log["updates"] and log["layers"]
    assert set(read_results(tmp_path / "results")) == {row["run"] for row in found}


def test_a_damaged_row_of_plasticity_is_named() -> None:
    row = next(row for row in read_results(Path(__file__).parents[2] / "results").values() if row.get("difference"))
    assert read_point(row).difference == float(row["difference"])
    with pytest.raises(ValueError, match=rf"^plasticity-.*\.csv: run='{row['run']}' has a damaged row .*'abc'"):
        read_point({**row, "difference": "abc"})


def test_a_column_is_read_by_its_former_name(tmp_path: Path) -> None:
    (kept,) = (Path(__file__).parents[2] / "results").glob("plasticity-*.csv")
    head, *rows = kept.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / kept.name).write_text(head.replace(",distribution,", ",scope,") + "".join(rows), encoding="utf-8")
    now = {name: row for name, row in read_results(kept.parent).items() if row["file"] == kept.name}
    assert read_results(tmp_path) == now
    assert {row["distribution"] for row in now.values()} == {"global", ""}  # "" of the pre-trainings

"""The plasticity study: its runs, its numbers, its files, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
import torch

from granet.cli import main
from granet.data import load
from granet.studies.plasticity import Study
from granet.studies.plasticity_file import read_study
from granet.studies.plasticity_results import Point, check_kept, means, points, rate_drops
from granet.training import Recipe, Run
from granet.training.records import EpochRecord
from granet.training.rundir import run_name
from refusals import refused

SPEC = """
epochs = 3
batch_size = 128
milestones = ["2ep"]
checkpoints = [1, 2]
continue_epochs = 1
sparsities = [0.0, 0.6]
rates = [0.3, 0.95]
measures = ["plasticity"]
"""

SMALL = """
epochs = 2
batch_size = 128
milestones = ["1ep"]
checkpoints = [1]
continue_epochs = 1
sparsities = [0.0, 0.6]
rates = [0.9]
measures = ["plasticity"]
"""


def write(folder: Path, text: str = SPEC) -> Path:
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def test_every_point_is_a_branch_of_its_trunk(tmp_path: Path) -> None:
    study, packed = read_study(
        write(tmp_path, SPEC.replace('["plasticity"]', '["plasticity", "final"]') + "packed = 3")
    )
    assert packed == 3
    branches = study.branches()
    assert len(branches) == 2 * 2 * 2 * 2 * 2 == len({run_name(branch.recipe) for branch in branches})
    for branch in branches:
        recipe = branch.recipe
        assert recipe.parent == run_name(branch.trunk) and branch.epoch in branch.trunk.keep
        assert recipe.hold == (1 if branch.measure == "plasticity" else 0)
        assert recipe.method == {"without": "prune-once", "with": "prune-regrow"}[branch.regeneration]
        assert dict(recipe.method_fields) == {"rate": branch.rate, "distribution": "global"}
    dense, sparse = study.trunks()
    assert dense.method == "dense"
    assert (sparse.method, dict(sparse.method_fields)) == ("static", {"sparsity": 0.6, "distribution": "uniform"})
    filters = Study(Recipe().dense_twin(), (1,), sparsities=(0.1,), rates=(0.5,), continue_epochs=1, pattern="filter")
    assert {recipe.method_fields["pattern"] for recipe in filters.recipes()} == {"filter"}


@pytest.mark.slow
def test_the_command_trains_draws_and_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    spec, out = write(tmp_path, SMALL), tmp_path / "out"
    main(["plasticity", str(spec), "--out", str(out), "--packed", "2"])
    with (out / "plasticity.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    for row in rows:
        epochs = [json.loads(line) for line in (out / row["run"] / "metrics.jsonl").read_text().splitlines()]
        epoch = int(row["epoch"])
        assert [record["epoch"] for record in epochs] == list(range(1, epoch + 2))
        before, after = epochs[epoch - 1], epochs[-1]
        assert float(row["learning_rate"]) == before["lr"] == after["lr"] == 0.1  # the schedule drops it after epoch 1
        assert float(row["difference"]) == pytest.approx(
            100 * (after["test_accuracy"] - before["test_accuracy"]), abs=2e-3
        )
        left = 1 - float(row["pretrained_sparsity"])
        left *= 1 - float(row["pruning_rate"]) if row["regeneration"] == "without" else 1
        assert float(row["sparsity"]) == pytest.approx(1 - left, abs=1e-4)
    assert (out / "plasticity-global.png").read_bytes().startswith(b"\x89PNG")
    drawn = (out / "plasticity-global.svg").read_text()
    assert "Pre-trained sparsity 0.6" in drawn and "pruning rate 0.9" in drawn and "with regeneration" in drawn
    page = (out / "plasticity.html").read_text()
    assert page.count("<svg") == 1 and len(re.findall(r"<td[^>]*>[+-]\d+\.\d\d</td>", page)) == 4
    assert "4 of 4 branches" in capsys.readouterr().out

    # A branch that is lost is made again, alone and the same.
    table = (out / "plasticity.csv").read_text()
    (out / rows[0]["run"] / "summary.json").unlink()
    main(["plasticity", str(spec), "--out", str(out), "--packed", "1"])
    assert "5 of 6 runs are done already" in capsys.readouterr().out
    assert (out / "plasticity.csv").read_text() == table

    # Without the trunk's checkpoint there is nothing to make it from.
    (out / rows[0]["run"] / "summary.json").unlink()
    lost = next(out.glob("*dense*/kept-0001.pt"))
    lost.unlink()
    with pytest.raises(SystemExit) as ended:
        main(["plasticity", str(spec), "--out", str(out)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.strip() == f"granet: {lost}: is missing; remove its folder to train that run again"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rates = [0.2, 1.0]", "rates=1.0: must"),
        ("rates = [0.0]", "rates=0.0: must"),
        ("sparsities = [1.0]", "sparsities=1.0: must"),
        ("continue_epochs = 2", "continue_epochs=2: from checkpoint 2 it goes past the end of the schedule, epoch 3"),
        ("checkpoints = [3]", "checkpoints=3: must be an epoch before the last, 3"),
        ("checkpoints = []", "checkpoints=[]: must"),
        ("checkpoints = 1", "checkpoints=1: must be a list"),
        ('measures = ["speed"]', "measures='speed': must be one of plasticity, final"),
        ('distributions = ["local"]', "distributions='local': must be one of global, uniform"),
        ('pattern = "x"', "pattern='x': must be weight, filter, fan-in, blocks"),
        ('pattern = "2:4"', "pattern='2:4': must be weight, filter or blocks such as 4x1"),
        ("rate = [0.2]", "unknown key 'rate'; the nearest is 'rates'"),
        ("hold = 3", "hold=3: a study sets it itself"),
        ("method = 'set'", "method='set': a study sets it itself; its fields are checkpoints, continue_epochs, "),
        ("seeds = [-1]", "seed=-1: must be 0 or more"),
        ("packed = 0", "packed=0: must be a number of runs"),
        ('epochs = "3"', "epochs='3': must be of type int"),
    ],
)
def test_bad_input_is_one_line_that_names_the_field(tmp_path: Path, line: str, message: str) -> None:
    key = line.split(" ")[0]
    text = "\n".join(old for old in SPEC.splitlines() if not old.startswith(f"{key} ")) + f"\n{line}\n"
    with refused(Path("study.toml"), ..., message):
        read_study(write(tmp_path, text))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("width = 0.5", "width=0.5: must be 1, "),
        ('exclude = ["nothing*"]', "exclude='nothing*': matches no sparsifiable weight"),
        ('pattern = "16x16"', "pattern='16x16': does not divide 'features.0.weight'"),
        ('pattern = "filter"', "sparsity=0.995: leaves 796 weights; pattern='filter' with floor=1 needs "),
    ],
)
@pytest.mark.filterwarnings("ignore:granet. pattern='filter'. a dropped row")
def test_what_does_not_fit_the_network_is_one_line_before_anything_runs(
    tmp_path: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        spec = write(tmp_path, SPEC.replace("sparsities = [0.0, 0.6]", "sparsities = [0.0, 0.995]") + f"\n{line}\n")
        main(["plasticity", str(spec), "--out", str(tmp_path / "runs")])
    error = capsys.readouterr().err.strip()
    assert ended.value.code == 2 and error.startswith(f"granet: {message}") and "\n" not in error
    assert not (tmp_path / "runs").exists()


def test_the_recipes_that_come_with_it_are_sound() -> None:
    folder = Path(__file__).parents[2] / "recipes" / "studies"
    found = {path.stem: read_study(path)[0] for path in sorted(folder.glob("plasticity-*.toml"))}
    assert len(found["plasticity-digits"].branches()) == 192
    paper = found["plasticity-cifar10-resnet20"]
    assert (paper.continue_epochs, paper.recipe.epochs, paper.distributions) == (30, 160, ("global", "uniform"))
    assert paper.sparsities == (0.0, 0.5, 0.9, 0.98) == (0.0, *paper.rates[1:])
    reduced = found["plasticity-cifar10-resnet20-reduced"]
    assert (len(reduced.trunks()), len(reduced.branches())) == (2, 64)
    assert max(recipe.total_epochs for recipe in reduced.recipes()) == 160  # the last checkpoint, 130, and 30 epochs
    assert found["plasticity-cifar10-resnet20-filters"].sparsities == (0.0, 0.1, 0.5, 0.7)


def test_means_and_drops() -> None:
    shared = dict.fromkeys(Point.__dataclass_fields__, "")
    seeds = [
        Point(**{**shared, "epoch": epoch, "difference": value}) for epoch, value in [(4, 1.0), (2, 5.0), (4, 2.0)]
    ]
    assert list(means(seeds).items()) == [(2, 5.0), (4, 1.5)]
    rates = [0.05, 0.1, 0.1, 0.01, 0.001, 0.0009]
    trunk = [EpochRecord(epoch, 0, 0, lr, 0, 0, 0, 0, 0, 0) for epoch, lr in enumerate(rates, start=1)]
    assert rate_drops(trunk) == [3, 4]
    halves = [EpochRecord(epoch, 0, 0, lr, 0, 0, 0, 0, 0, 0) for epoch, lr in enumerate([0.5, 0.25, 0.126], start=1)]
    assert rate_drops(halves) == [1]  # half is enough, and nothing less


@pytest.mark.slow
def test_a_point_does_not_depend_on_where_its_trunk_is_now(tmp_path: Path) -> None:
    text = SMALL.replace('["plasticity"]', '["plasticity", "final"]').replace("[0.0, 0.6]", "[0.0]")
    study, _ = read_study(write(tmp_path, text + 'seeds = [3]\nscopes = ["uniform"]\n'))
    for recipe in study.recipes():
        list(Run(recipe, load("digits"), torch.device("cpu"), tmp_path).epochs())
    whole = points(study, tmp_path)
    assert {point.measure for point in whole} == {"plasticity", "final"}
    trunk = tmp_path / run_name(study.trunks()[0])
    reached = [json.loads(line)["test_accuracy"] for line in (trunk / "metrics.jsonl").read_text().splitlines()]
    assert len(set(reached)) == 2
    for point in whole:  # pruned after epoch 1: compared with that, or with the trunk's end
        assert (point.seed, point.distribution, point.learning_rate) == (3, "uniform", 0.1)
        assert point.accuracy_before == round(100 * reached[0 if point.measure == "plasticity" else -1], 3)
        assert point.difference == pytest.approx(point.accuracy_after - point.accuracy_before, abs=0.0011)
    (trunk / "kept-0001.pt").unlink()
    check_kept(study.branches(), tmp_path)  # which finished branches do not need
    (trunk / "summary.json").unlink()  # as if it had been begun again
    (trunk / "metrics.jsonl").write_text("")
    assert points(study, tmp_path) == [point for point in whole if point.measure == "plasticity"]


def test_unfinished_branches_are_left_out(tmp_path: Path) -> None:
    assert points(read_study(write(tmp_path))[0], tmp_path) == []

"""Run folders are read as they are, or refused with the file and the line."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from granet.report.read import find_runs, read_run
from granet.training import Recipe
from refusals import refused

Make = Callable[..., Path]


def test_a_run_is_read_back(make_run: Make) -> None:
    folder = make_run()
    run = read_run(folder)
    assert run.path == folder and run.recipe == Recipe(method_fields={"sparsity": 0.75}, epochs=3)
    assert [record.epoch for record in run.records] == [1, 2, 3]
    assert run.records[2].test_accuracy == pytest.approx(0.63)
    assert run.summary is not None and run.summary.nonzero == 63
    assert [(layer.name, layer.shape, layer.sparsity) for layer in run.layers] == [
        ("features.0.weight", (4, 1, 3, 3), 0.25),
        ("classifier.weight", (10, 16), 0.8625),
    ]
    assert [(one.step, one.active) for one in run.updates] == [(20, (36, 160)), (40, (27, 22))]
    assert run.environment["torch"] == "2.13.0"


def test_null_is_nan_where_a_number_must_be(make_run: Make) -> None:
    folder = make_run(epochs=1)
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"train_loss": 1.0', '"train_loss": null'))
    metrics.write_text(re.sub(r'"val_accuracy": [0-9.]+', '"val_accuracy": null', metrics.read_text()))
    (record,) = read_run(folder).records
    assert math.isnan(record.train_loss) and record.val_accuracy is None


def test_the_last_line_of_a_running_run_may_be_half_there(make_run: Make) -> None:
    folder = make_run(finished=False)
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-10])
    assert [record.epoch for record in read_run(folder).records] == [1, 2]
    metrics.write_text("")
    assert read_run(folder).records == ()
    metrics.unlink()  # before the first epoch
    assert read_run(folder).records == ()


def test_layers_and_updates_are_those_of_a_finished_run(make_run: Make) -> None:
    """A run that is taken up again removes both, and may be killed in between."""
    folder = make_run()
    (folder / "layers.json").unlink()
    with pytest.raises(ValueError, match=r"updates\.jsonl, line 1: .*2 numbers.* 0 layers"):
        read_run(folder)
    (folder / "summary.json").unlink()
    assert read_run(folder).updates == ()


def test_the_last_line_of_a_finished_run_may_not(make_run: Make) -> None:
    folder = make_run()
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-10])
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 3: "):
        read_run(folder)


@pytest.mark.parametrize(
    ("name", "old", "new", "where"),
    [
        ("metrics.jsonl", '"epoch": 2', '"epoch": "two"', r"metrics\.jsonl, line 2: .*epoch='two'"),
        ("metrics.jsonl", '"epoch": 2', '"ep": 2', r"metrics\.jsonl, line 2: .*ep"),
        ("metrics.jsonl", '{"epoch": 2', '["epoch", 2', r"metrics\.jsonl, line 2: "),
        ("metrics.jsonl", '{"epoch": 2', "\n", r"metrics\.jsonl, line 2: "),
        ("summary.json", '"nonzero"', '"non"', r"summary\.json: .*non"),
        ("summary.json", "63", "null and void", r"summary\.json: "),
        ("config.json", '"lr"', '"learning"', r"config\.json: .*recipe='learning'"),
        ("config.json", '"recipe"', '"recipes"', r"config\.json: .*no 'recipe'"),
        ("config.json", '"epochs": 3', '"epochs": 0', r"config\.json: .*epochs=0"),
        ("config.json", '"epochs": 3', '"epochs": "3"', r"config\.json: "),
        ("config.json", '"model": "digits_net"', '"model": null', r"config\.json: .*model=None"),
        ("config.json", '"data": "digits"', '"data": []', r"config\.json: .*data=\[\]"),
        ("config.json", '"method": "granet"', '"method": {}', r"config\.json: .*method=\{\}"),
        ("config.json", '"nesterov": true', '"nesterov": 1', r"config\.json: .*nesterov=1"),
        ("layers.json", '"name": "features.0.weight"', '"name": null', r"layers\.json: .*name=None is not a text"),
        ("layers.json", '"active": 27', '"active": "27"', r"layers\.json: .*active='27' is not a number"),
        ("updates.jsonl", "[27, 22]", '[27, "22"]', r"updates\.jsonl, line 2: .*active\[1\]='22' is not a number"),
        ("updates.jsonl", '"skipped": false', '"skipped": []', r"updates\.jsonl, line 1: .*skipped=\[\] is neither"),
        ("layers.json", '"active": 27', '"active": 37', r"layers\.json: .*37 active of 36"),
        ("layers.json", "[10, 16]", "[10, 15]", r"layers\.json: .*\(10, 15\) and 160 weights"),
        ("layers.json", "[10, 16]", "[-10, -16]", r"layers\.json: .*\(-10, -16\) and 160 weights"),
        ("layers.json", '"shape"', '"form"', r"layers\.json: .*no 'shape'"),
        ("updates.jsonl", "[27, 22]", "[27]", r"updates\.jsonl, line 2: .*1 numbers.* 2 layers"),
        ("updates.jsonl", "[27, 22]", "[27, 22, 1]", r"updates\.jsonl, line 2: .*3 numbers.* 2 layers"),
        ("layers.json", '"active": 27', '"active": -1', r"layers\.json: .*-1 active of 36"),
        ("updates.jsonl", "[36, 160]", "196", r"updates\.jsonl, line 1: "),
    ],
)
def test_damage_is_named(make_run: Make, name: str, old: str, new: str, where: str) -> None:
    folder = make_run()
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=f"^{re.escape(str(folder))}/{where}") as error:
        read_run(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "where"),
    [
        ("metrics.jsonl", '"epoch": 2', '"epoch": HUGE', r"metrics\.jsonl, line 2: .*epoch is too large"),
        ("metrics.jsonl", '"lr": 0.1', '"lr": -HUGE', r"metrics\.jsonl, line 1: .*lr is too large"),
        (
            "metrics.jsonl",
            '"epoch"',
            '"observed": {"a": HUGE}, "epoch"',
            r"metrics\.jsonl, line 1: .*observed a is too",
        ),
        ("updates.jsonl", "[27, 22]", "[27, HUGE]", r"updates\.jsonl, line 2: .*active\[1\] is too large"),
    ],
)
def test_a_whole_number_that_is_no_fraction_is_named(make_run: Make, name: str, old: str, new: str, where: str) -> None:
    test_damage_is_named(make_run, name, old, new.replace("HUGE", str(10**400)), where)


def test_runs_are_found_in_folders_and_each_once(make_run: Make, tmp_path: Path) -> None:
    b, a = make_run("b"), make_run("a")
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "list.txt").write_text("")
    assert find_runs([tmp_path / "runs"]) == [a, b]
    assert find_runs([b, tmp_path / "runs", a / ".." / "a"]) == [b, a]


def test_no_run(make_run: Make, tmp_path: Path) -> None:
    config = make_run() / "config.json"
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "none", config, tmp_path):
        with pytest.raises(ValueError, match=f"^runs={re.escape(repr(str(path)))}: "):
            find_runs([config.parent, path])


def test_files_that_are_not_text(make_run: Make) -> None:
    folder = make_run()
    (folder / "summary.json").write_bytes(b"\xff\xfe\x00")
    with refused(Path("summary.json")):
        read_run(folder)
    (folder / "summary.json").write_text(json.dumps([1, 2]))
    with refused(Path("summary.json")):
        read_run(folder)

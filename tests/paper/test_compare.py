"""Means, differences and standard errors against sums written out; pages and README from the files in results/."""

import itertools
import json
import math
import statistics
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from granet.training import Recipe
from granet.training.records import EpochRecord, best_on_test
from granet.training.rundir import run_name
from paper.compare import Comparison, SeedDeviations, compare, with_deviations
from paper.registry import TABLES, Name
from paper.reproducible import PAGES, Selection
from paper.results import read_results
from paper.results_page import page
from paper.shortfall import PROTOCOL, below, section, why
from paper.tables import Cell, cells
from quick import slow_but_for
from refusals import refused

ROOT = Path(__file__).parents[2]
CELL = Cell("cifar-main", "GMP", "vgg19", "cifar10", 0.9, 93.0, 0.3)
TABLES_OF_VGG = ("cifar-main", "cifar-uniform", "retraining", "zoo")
DENSE = Cell("cifar-main", "Dense", "vgg19", "cifar10", 0.0, 93.85)


def test_difference_and_its_standard_error() -> None:
    one = Comparison(CELL, (93.1, 93.3, 93.8), (93.5,), deviations=SeedDeviations(0.3, 0.2, 0.1))
    assert one.difference == pytest.approx(0.4)
    assert one.standard_error == pytest.approx(math.sqrt(0.3**2 / 3 + 0.1**2 / 3))
    single, none = replace(one, last=(92.0,)), replace(one, last=())
    assert single.standard_error == pytest.approx(math.sqrt(0.3**2 + 0.1**2 / 3))
    assert none.difference is None and none.standard_error is None
    assert replace(one, deviations=SeedDeviations(0.3)).standard_error is None
    assert one.at_best_test_epoch.standard_error == pytest.approx(math.sqrt(0.2**2 + 0.1**2 / 3))


def test_a_cell_that_the_paper_does_not_print() -> None:
    cell = Cell("reinit", "GMP", "vgg19", "cifar10", 0.9)
    both = [Comparison(cell, (93.0, 94.0)), Comparison(cell, ())]
    several, none = with_deviations(both, both)
    assert several.difference is None
    assert several.standard_error == pytest.approx(math.sqrt(0.5 / 2))
    assert "| GMP | 93.50 ± 0.50, n=2 |" in page("reinit", [several])
    assert "| GMP | - |" in page("reinit", [none]) and "protocol" not in page("reinit", [several])


def test_deviations_are_pooled_over_the_cells_of_a_network_and_data_set() -> None:
    mine, other = replace(CELL, std=None), replace(CELL, data="cifar100", std=None)
    several = [Comparison(mine, last, (1.0, 4.0)) for last in ((1.0, 2.0, 3.0), (5.0, 7.0), (9.0,))]
    last, best_on_test = math.sqrt((1.0 * 2 + 2.0 * 1) / 3), math.sqrt(4.5)
    apart = [several[2], Comparison(other, (1.0, 2.0))]
    assert [one.deviations.last for one in with_deviations(apart, apart)] == [None, pytest.approx(math.sqrt(0.5))]
    papers = [Comparison(CELL, ()), Comparison(replace(CELL, std=0.1), (9.0,))]
    paper = math.sqrt((0.3**2 + 0.1**2) / 2)
    for known, expected in (
        ([*several, *papers], (last, best_on_test, paper)),
        (several, (last, best_on_test, best_on_test)),  # the paper's are best epochs
        (papers, (paper, paper, paper)),
    ):
        assert all(astuple(one.deviations) == pytest.approx(expected) for one in with_deviations(several, known))
    assert with_deviations(several[:1], [])[0].deviations == SeedDeviations()
    broken = Comparison(mine, (91.0, 92.0), (91.0, 92.1), falls=(0.1, 10.1))
    assert with_deviations(several, [*several, broken]) == with_deviations(several, several)


def test_a_cell_has_the_same_standard_error_in_every_table() -> None:
    """Also where few of the table's cells were run, or chosen; runs that stand in several tables count once."""
    results = {
        run_name(cell.recipes(seed)[-1]): {"accuracy_last": str(93.0 + deviation * seed), "accuracy_as_paper": "94"}
        for cell, deviation in ((DENSE, 1.0), (CELL, 2.0))
        for seed in (0, 1)
    }
    every = [
        cell for table in TABLES_OF_VGG for cell in cells(table) if (cell.model, cell.data) == ("vgg19", "cifar10")
    ]
    printed = [cell for cell in every if cell.std is not None and not cell.other_reading]
    theirs = {run_name(cell.recipes(0)[-1]): cell.std for cell in printed}.values()
    paper = math.sqrt(statistics.mean(std**2 for std in theirs))
    for table in TABLES_OF_VGG:
        (one,) = compare([cell for cell in every if (cell.table, cell.row) == (table, "Dense")], results, (0,))
        assert astuple(one.deviations) == pytest.approx((math.sqrt((0.5 + 2.0) / 2), 0.0, paper))


def test_a_table_of_which_only_the_dense_row_was_run_has_all_its_columns() -> None:
    sparse = replace(CELL, table="cifar-uniform")
    text = page("cifar-uniform", [Comparison(DENSE, (93.0,), (93.1,)), Comparison(sparse, ())])
    _, _, protocol = text.partition("By the paper's protocol")
    assert "| method | 90% |\n| --- | --- |\n| Dense | 93.10, n=1 (-0.75) |\n" in protocol and "GMP" not in protocol


def test_how_far_all_cells_are_from_the_paper_together() -> None:
    """Those that it ran itself: it prints their deviation."""
    other, borrowed = replace(CELL, sparsity=0.95), replace(CELL, row="SNIP", std=None)
    ours = [Comparison(CELL, (0.0,), (93.1,)), Comparison(other, (0.0,), (93.5,)), Comparison(borrowed, (0.0,), (0.0,))]
    told = "the 2 that we ran too are +0.30 from it on average, with a deviation of 0.28"
    assert told in page("cifar-main", ours)
    assert "ran itself" not in page("cifar-main", ours[1:])
    other = replace(CELL, table="cifar-uniform", row="GMP, first layer dense", other_reading=True)
    text = page("cifar-main", [*ours, Comparison(other, (0.0,), (99.0,))])
    assert told in text  # the paper prints one number for both readings
    assert "Other readings of the paper, and trials, compared with the same numbers: GMP, first layer dense.\n" in text


def test_rows_that_the_paper_did_not_run_are_named() -> None:
    borrowed = replace(CELL, row="SNIP", std=None)
    told = "It took these rows from other works, which may have chosen and averaged otherwise: SNIP.\n"
    assert told in page("cifar-main", [Comparison(CELL, ()), Comparison(borrowed, ())])
    assert "other works" not in page("cifar-main", [Comparison(CELL, ())])


def test_the_same_runs_as_the_paper_would_report_them() -> None:
    one = Comparison(CELL, (92.5, 92.7), (92.9, 93.3), deviations=SeedDeviations(0.1, 0.2, 0.1))
    assert one.at_best_test_epoch.difference == pytest.approx(0.1)
    text = page("cifar-main", [one])
    assert "| GMP | 92.60, n=2 (-0.40 ± 0.09) |" in text and "| GMP | 93.10, n=2 (+0.10 ± 0.15) |" in text
    assert "(in the median run 0.50 higher)" in text
    told = "- **VGG-19, CIFAR-10, GMP**: -0.40 ± 0.09 at 90% (+0.10 ± 0.15 by the paper's protocol)."
    assert f"{told} {PROTOCOL}\n" in text


def test_cells_clearly_below_the_paper_are_named() -> None:
    far = Comparison(CELL, (92.5,), (92.6,), deviations=SeedDeviations(0.1, 0.1, 0.1))
    near = replace(far, last=(92.8,), best_on_test=(92.9,))
    assert below([far, near, replace(far, deviations=SeedDeviations()), replace(far, last=())]) == [far]
    told = "-0.50 ± 0.12 at 90% (-0.40 ± 0.12 by the paper's protocol)"
    assert page("cifar-main", [far, near]).count(f"GMP**: {told}. Not explained yet.") == 1
    farther = replace(far, cell=replace(CELL, sparsity=0.95))
    together = f"GMP**: {told}, {told.replace('90%', '95%')}. Not explained yet."
    assert page("cifar-main", [far, near, farther]).count(together) == 1  # one reason is told once
    assert "below the paper" not in page("cifar-main", [near])


def test_a_reason_is_that_of_its_network() -> None:
    cell = Cell("cifar-main", "SNIP", "vgg19", "cifar10", 0.98, 92.0)
    far = Comparison(cell, (30.0,), (30.0,), deviations=SeedDeviations(0.1, 0.1, 0.1))
    assert why(far) != "Not explained yet."
    assert why(replace(far, cell=replace(cell, model="resnet50"))) == "Not explained yet."


def test_a_reason_of_one_table_comes_before_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "VGG-19, CIFAR-10, GMP"
    monkeypatch.setattr("paper.shortfall.WHY", {row: "Everywhere.", f"cifar-uniform: {row}": "Here."})
    far = Comparison(CELL, (90.0,), (90.0,), deviations=SeedDeviations(0.1, 0.1, 0.1))
    assert [why(replace(far, cell=replace(CELL, table=table))) for table in ("cifar-main", "cifar-uniform")] == [
        "Everywhere.",
        "Here.",
    ]


def test_a_long_reason_is_told_once() -> None:
    cell = Cell("cifar-uniform", "GMP", "vgg19", "cifar10", 0.98, 92.0)
    far = Comparison(cell, (90.0,), (90.0,), deviations=SeedDeviations(0.1, 0.1, 0.1))
    text = page("cifar-uniform", [far, replace(far, cell=replace(cell, row="GraNet (s_i=0)"))])
    assert text.count(why(far)) == 1
    assert text.count("by the paper's protocol). As for VGG-19, CIFAR-10, GMP.\n") == 1


def test_cells_below_the_paper_are_told_by_network_and_data_set() -> None:
    """In the order of the paper; a short reason stands in every line, and the dense row has no sparsity."""
    places = [("resnet50", "cifar10"), ("vgg19", "cifar100"), ("vgg19", "cifar10")]
    dense = [replace(DENSE, model=model, data=data) for model, data in places]
    far = [Comparison(cell, (93.0,), (93.85,), deviations=SeedDeviations(0.1, 0.1, 0.1)) for cell in dense]
    lines = section(far).splitlines()[-3:]
    told = f"-0.85 ± 0.12 (+0.00 ± 0.12 by the paper's protocol). {PROTOCOL}"
    assert lines == [
        f"- **{place}, Dense**: {told}" for place in ("VGG-19, CIFAR-10", "VGG-19, CIFAR-100", "ResNet-50, CIFAR-10")
    ]


def test_a_cell_of_which_some_runs_broke_down_has_a_deviation_of_its_own() -> None:
    one = Comparison(CELL, (30.0, 92.0), (83.0, 92.0), falls=(46.0, 0.3), deviations=SeedDeviations(0.1, 0.1, 0.0))
    assert one.own_error == pytest.approx(31.0) and one.at_best_test_epoch.own_error == pytest.approx(4.5)
    assert below([one]) == [one]  # though it is within two standard errors
    slightly = [replace(one, last=(90.0, best)) for best in (95.9, 96.1)]  # 93.0 is the paper's
    assert below(slightly) == slightly[:1]
    assert [replace(one, falls=falls).broke_down for falls in ((), (10.0,), (10.1,))] == [False, False, True]
    assert "| GMP | 61.00, n=2 (-32.00 ± 31.00) |" in page("cifar-main", [one])


def test_a_single_run_that_broke_down_has_no_standard_error() -> None:
    """It says nothing of how far others would end from it, and counts in no mean over cells."""
    one = Comparison(CELL, (80.0,), (82.0,), falls=(38.0,), deviations=SeedDeviations(0.1, 0.1, 0.1))
    assert one.own_error is None and below([one]) == [one] and below([replace(one, last=(93.1,))]) == []
    sound = [replace(one, falls=(0.2,), best_on_test=(best,)) for best in (93.1, 93.5)]
    text = page("cifar-main", [one, *sound])
    assert "| GMP | 80.00, n=1 (-13.00) |" in text and "- **VGG-19, CIFAR-10, GMP**: -13.00 at 90%" in text
    assert "the 2 that we ran too, without those where a run broke down, are +0.30 from it on average" in text


def test_every_cell_clearly_below_the_paper_is_explained() -> None:
    for table in ("cifar-main", "zoo", "cifar-uniform", "retraining"):
        assert "Not explained" not in (ROOT / PAGES / f"{table}.md").read_text()


def test_results_find_their_cells() -> None:
    recipe = CELL.recipes(1)[-1]
    results = {run_name(recipe): {"accuracy_last": "93.5", "accuracy_as_paper": "93.6", "test_flops": ""}}
    (one,) = compare([CELL], results, seeds=(0, 1, 2))
    assert (one.last, one.best_on_test, one.test_flops) == ((93.5,), (93.6,), ())
    assert f"93.50, n=1 (+0.50 ± {one.standard_error:.2f})" in page("cifar-main", [one])
    costs = {
        "accuracy_last": "93.5",
        "test_flops": "0.2",
        "train_flops": "0.3",
        "sparsity_achieved": "0.9",
        "largest_fall": "0.0",
    }
    (one,) = compare([CELL], {run_name(recipe): costs}, seeds=(1,))
    assert (one.test_flops, one.train_flops, one.sparsities, one.falls) == ((0.2,), (0.3,), (0.9,), (0.0,))
    (one,) = compare([CELL], results, seeds=(0, 2))
    assert one.last == ()  # of other seeds


@pytest.mark.slow
def test_every_row_of_the_results_has_its_log_and_belongs_to_a_table() -> None:
    known = {run_name(recipe) for make in TABLES.values() for recipe in make(Selection()).missing((), Path("nowhere"))}
    results = read_results(ROOT / "results")
    assert results
    for name, row in results.items():
        assert name in known
        log = json.loads((ROOT / "results" / "logs" / f"{name}.json").read_text())
        recipe = Recipe.from_dict(log["recipe"])
        assert run_name(recipe) == name and len(log["epochs"]) == recipe.total_epochs - recipe.branch_epoch
        assert float(row["accuracy_last"]) == pytest.approx(100 * log["epochs"][-1]["test_accuracy"], abs=0.006)
        chosen = best_on_test([EpochRecord(**epoch) for epoch in log["epochs"]])
        assert float(row["accuracy_as_paper"]) == pytest.approx(100 * chosen.test_accuracy, abs=0.0006)
        reached = [epoch["train_accuracy"] for epoch in log["epochs"]]
        falls = [100 * (before - after) for before, after in itertools.pairwise(reached)]
        assert float(row["largest_fall"]) == pytest.approx(max(0.0, *falls), abs=0.006)
        assert float(row["sparsity_asked"]) == recipe.method_fields.get("sparsity", float(row["sparsity_asked"]))
        off = 0.0005 if row["method"] == "str" else 1e-5  # its thresholds decide
        assert float(row["sparsity_achieved"]) == pytest.approx(float(row["sparsity_asked"]), abs=off)


def same_picture(mine: Path, theirs: Path) -> bool:
    """But for the edges of lines and letters, which another version of matplotlib may draw differently."""
    with Image.open(mine) as one, Image.open(theirs) as other:
        difference = ImageChops.difference(one.convert("L").reduce(4), other.convert("L").reduce(4))
        return one.size == other.size and difference.getextrema()[1] < 64


@pytest.mark.parametrize("name", slow_but_for(["cifar-main", "zoo"], TABLES))
def test_the_pages_are_what_the_results_give(name: Name, tmp_path: Path) -> None:
    """So is the README."""
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    written = [path.relative_to(tmp_path) for path in TABLES[name](Selection()).write(ROOT / "results", tmp_path)]
    assert PAGES / f"{name}.md" in written and (Path("README.md") in written) == (name == "cifar-main")
    for path in written:
        if path.suffix == ".png":
            assert same_picture(tmp_path / path, ROOT / path), f"{path} shows other results"
        else:
            assert (tmp_path / path).read_text() == (ROOT / path).read_text()


def test_a_table_tells_what_its_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all seeds, also where only the first is asked for; those are counted."""
    dense = next(cell for cell in cells("zoo") if cell.row == "Dense")
    results = {run_name(dense.recipes(seed)[-1]): {"accuracy_last": f"{92 + seed}"} for seed in (1, 2)}
    monkeypatch.setattr("paper.accuracy_table.read_results", lambda folder: results)
    for seeds, counted, shown in (((), "0 of 1 seeds", "93.50, n=2"), ((0, 2), "1 of 2 seeds", "94.00, n=1")):
        (told,) = (line for line in TABLES["zoo"](Selection(seeds)).lines(Path()) if "Dense" in line.split())
        assert counted in told and shown in told


def test_a_readme_without_a_place_for_the_table_is_told_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Nothing here.\n")
    with refused(Path("README.md")):
        list(TABLES["cifar-main"](Selection()).write(ROOT / "results", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]

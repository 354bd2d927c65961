"""The plasticity study as a table: what is kept of its runs, and what its page shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from granet.data import load
from granet.studies.plasticity_file import read_study
from granet.studies.plasticity_results import points
from granet.training import Run
from granet.training.rundir import run_name
from paper.plasticity_table import PlasticityTable, paper_grid, plasticity_table, read_point
from paper.reproducible import Selection
from paper.results import read_results
from refusals import refused

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


@pytest.mark.slow
def test_a_study_as_a_table_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the digits: what is kept of the runs is enough for the page and the figure, and nothing is trained twice."""
    monkeypatch.setenv("GRANET_COMMIT", "0123abc")
    (tmp_path / "study.toml").write_text(SMALL)
    study, _ = read_study(tmp_path / "study.toml")
    table, out, results = PlasticityTable(study), tmp_path / "out", tmp_path / "results"
    left = table.missing((), out)
    assert left == study.recipes()
    for recipe in left:
        list(Run(recipe, load("digits"), torch.device("cpu"), out).epochs())
        table.keep(recipe, out, results)
    rows = read_results(results)
    assert set(rows) == {run_name(recipe) for recipe in left} and table.missing(rows, out) == []
    assert [read_point(rows[run_name(branch.recipe)]) for branch in study.branches()] == points(study, out)
    assert len(list(results.glob("plasticity-cpu-torch*.csv"))) == 1
    measured = ["seed", "commit", "run", "seconds", "accuracy_last", "accuracy_best", "train_flops", "test_flops"]
    for row in rows.values():
        assert all(row[name] for name in [*measured, "sparsity_achieved"])
        log = json.loads((results / "logs" / f"{row['run']}.json").read_text())
        first = 1 + log["recipe"]["branch_epoch"]  # what came before is in the log of the trunk
        assert [record["epoch"] for record in log["epochs"]] == list(range(first, 3))
        if row["measure"]:
            assert float(row["sparsity_asked"]) == pytest.approx(float(row["sparsity_achieved"]), abs=1e-3)

    written = [path.relative_to(tmp_path) for path in table.write(results, tmp_path)]
    assert written == [Path("docs/results/plasticity.md"), Path("docs/results/plasticity.png")]
    text = (tmp_path / written[0]).read_text()
    for point in points(study, out):
        assert f"| {point.regeneration} | {point.pruning_rate:g} | {point.difference:+.2f} |" in text
        assert f"| accuracy before |  | {point.accuracy_before:.2f} % |" in text
    told = list(table.lines(results))
    assert len(told) == 6 and all("measured" in line for line in told)

    # A branch that is lost needs its trunk again, and the trunk's checkpoint.
    branch = study.branches()[0]
    rows.pop(run_name(branch.recipe))
    assert table.missing(rows, out) == [branch.trunk, branch.recipe]
    (out / run_name(branch.recipe) / "summary.json").unlink()
    next(out.glob("*dense*/kept-0001.pt")).unlink()
    with pytest.raises(ValueError, match=r"kept-0001.pt: is missing; remove its folder"):
        table.missing(rows, out)


def test_the_table_has_parts_by_seeds_only() -> None:
    table = plasticity_table(Selection(seeds=(4, 5)))
    assert table.study.seeds == (4, 5) and len(table.missing((), Path("nowhere"))) == 2 * 66
    with refused("rows", ("GMP",)):
        plasticity_table(Selection(rows=("GMP",)))


def test_its_grid_is_the_reduced_one() -> None:
    recipes = Path(__file__).parents[2] / "recipes" / "studies"
    assert paper_grid() == read_study(recipes / "plasticity-cifar10-resnet20-reduced.toml")[0]

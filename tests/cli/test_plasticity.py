"""`granet plasticity`: which points are in which table, figure and page."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from granet.cli.plasticity import Plasticity, summary_table
from granet.studies.plasticity import Study
from granet.studies.plasticity_results import Point
from granet.training import Recipe

STUDY = Study(
    Recipe(epochs=4).dense_twin(),
    checkpoints=(2, 1),
    sparsities=(0.0,),
    rates=(0.5,),
    continue_epochs=1,
    distributions=("global", "uniform"),
)
SETTING = ("digits", "digits_net", "weight")


def point(measure: str, distribution: str, epoch: int, difference: float) -> Point:
    return Point(
        *SETTING, measure, distribution, 0.0, 0.5, "without", epoch, 0.1, 0, 90.0, 90.0, difference, 0.5, "run"
    )


POINTS = [
    point("plasticity", "global", 1, -1.0),
    point("plasticity", "global", 2, 0.0),
    point("plasticity", "uniform", 1, -3.0),
    point("final", "global", 1, -4.0),
]


def test_a_table_has_a_row_for_each_line_and_a_column_for_each_checkpoint() -> None:
    table = summary_table(STUDY, "plasticity", POINTS[:3])
    distribution, _, regeneration, _, first, second = (list(column.cells) for column in table.columns)
    assert [table.columns[4].header, table.columns[5].header] == ["1", "2"]
    rows = zip(distribution, regeneration, first, second, strict=True)
    assert {row for row in rows if row[1] == "without"} == {
        ("global", "without", "-1.0", "+0.0"),
        ("uniform", "without", "-3.0", "-"),
    }


@pytest.mark.parametrize("draws", [True, False])
def test_each_measure_and_scope_has_its_own_points(
    draws: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, figures = [], {}

    def shown(study: Study, measure: str, found: list[Point]) -> str:
        tables.append((measure, found))
        return measure

    def drawn(study: Study, chosen: list[Point], drops: object, title: object, path: Path) -> None:
        figures[path.name] = chosen

    pytest.importorskip("matplotlib")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if draws else None)
    monkeypatch.setattr("granet.cli.plasticity.summary_table", shown)
    monkeypatch.setattr("granet.studies.plasticity_figure.write_figure", drawn)
    Plasticity(spec=Path("study.toml"), out=tmp_path)._write(Console(file=io.StringIO()), STUDY, POINTS)
    assert tables == [("plasticity", POINTS[:3]), ("final", POINTS[3:])]
    assert (tmp_path / "plasticity.csv").read_text().count("\n") == 5
    assert (tmp_path / "plasticity.html").exists() == draws
    pictures = {"plasticity-global.png": POINTS[:2], "plasticity-uniform.png": POINTS[2:3]}
    pictures |= {"final-global.png": POINTS[3:], "final-uniform.png": []}
    assert figures == (pictures if draws else {})

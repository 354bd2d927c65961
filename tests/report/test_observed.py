"""What observers saw, in the page."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from granet.report import read_run, write_report
from granet.report.labels import shown_runs
from granet.report.observed import _paint, points

figure = pytest.importorskip("matplotlib.figure")
Make = Callable[..., Path]


def observe(run: Path, *figures: dict[str, object]) -> Path:
    path = run / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [json.dumps(record | {"observed": one}) for record, one in zip(records, figures, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return run


@pytest.mark.slow
@pytest.mark.usefixtures("words_alone")
def test_a_figure_for_each_observer_with_its_last_values(make_run: Make, tmp_path: Path) -> None:
    first = observe(
        make_run("first"),
        {"overlap.jaccard": 0.25, "overlap.kept": 0.4, "survival.alive": 1.0},
        {"survival.alive": 0.5, "survival.age_at_death": 3.0, "dormant.share": None},
        {"overlap.jaccard": 0.75, "overlap.kept": 0.8, "survival.alive": 0.125, "survival.age_at_death": 3.5},
    )
    second = make_run("second")
    write_report([first, second], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    section = text[text.index("<h2>Observed</h2>") : text.index("<h2>Sparsity by layer</h2>")]
    assert section.count("<figure>") == 3
    assert "jaccard 0.75, kept 0.8" in section and "alive 0.125, age at death 3.5" in section
    assert "jaccard solid, kept dashed" in section and "age at death dashed (right axis)" in section
    assert points(read_run(first), "overlap.kept") == ([1, 3], [0.4, 0.8])
    assert points(read_run(first), "dormant.share") == points(read_run(second), "overlap.kept") == ([], [])


@pytest.mark.usefixtures("words_alone")
def test_more_figures_than_styles_are_drawn_in_parts(make_run: Make, tmp_path: Path) -> None:
    figures = {f"Mine.figure_{number}": float(number) for number in range(6)}
    write_report([observe(make_run(), *[figures] * 3)], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    section = text[text.index("<h2>Observed</h2>") : text.index("<h2>Sparsity by layer</h2>")]
    assert section.count("<figure>") == 2
    assert "figure 3 dash-dotted." in section and "figure 4 solid, figure 5 dashed." in section
    assert 'figure 3 3"' in section and ': figure 4 4, figure 5 5"' in section  # the last values, described


def test_what_is_no_share_has_the_axis_on_the_right(make_run: Make) -> None:
    seen = [
        {"survival.alive": alive, "survival.age_at_death": age} for alive, age in ((1.0, 40.0), (0.5, 30.0), (0, 20))
    ]
    axes = figure.Figure().subplots()
    _paint(axes, "survival", ["alive", "age_at_death"], shown_runs([read_run(observe(make_run(), *seen))]))
    left, right = axes.figure.axes
    assert [list(line.get_ydata()) for line in left.lines] == [[1, 0.5, 0]]
    assert [list(line.get_ydata()) for line in right.lines] == [[40, 30, 20]]
    assert left.get_ylim()[0] == 0  # nothing is below
    assert right.get_ylabel() == "mask updates"


@pytest.mark.slow
@pytest.mark.usefixtures("words_alone")
def test_without_observers_there_is_no_such_section(make_run: Make, tmp_path: Path) -> None:
    write_report([make_run()], tmp_path / "page.html")
    assert "Observed" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_damage_is_named(make_run: Make) -> None:
    run = observe(make_run(), {}, {"overlap.kept": "much"}, {})
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: is damaged .* overlap\.kept='much' is not a number"):
        read_run(run)

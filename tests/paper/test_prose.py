"""What pages say in words: each part is of a row that there is, and its accuracies are those of the results."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from paper.compare import compare
from paper.prose import FOLDER, prose, sections
from paper.results import read_results
from paper.shortfall import WHY
from paper.tables import ROWS, Cell, cells
from paper.wording import in_full

CELLS = [cell for table in ROWS for cell in cells(table)]
FORETOLD, NOT_KEPT = "76.75", "91.50"
"""By the runs without a warm-up (test_slow_start.py has it); of a run whose log was not kept, as its text says."""


def row(cell: Cell) -> str:
    return f"{in_full(*cell.place)}, {cell.row}"


def test_headings_that_stand_together_share_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paper.prose.FOLDER", tmp_path)
    parts = "## One\n\n## Two\n\nIn two\nlines.\n\n## Three, more\n\nEnd.\n"
    (tmp_path / "a.md").write_text(f"# Title\n\nFor readers.\n\n{parts}")
    assert sections("a") == {"One": "In two lines.", "Two": "In two lines.", "Three, more": "End."}
    (tmp_path / "b.md").write_text("{what} of\nmany.\n")
    assert prose("b", what="One") == "One of\nmany.\n"


def test_every_essay_is_of_a_row_that_there_is() -> None:
    rows = {row(cell) for cell in CELLS} | {f"{cell.table}: {row(cell)}" for cell in CELLS}
    assert WHY and set(WHY) <= rows


def test_every_text_is_on_a_page() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in FOLDER.parent.glob("*.py"))
    assert all(re.search(rf"""["']{path.stem}["']""", code) for path in FOLDER.iterdir())


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Each network to the accuracies of its cells, ours and the paper's."""
    found: dict[str, set[str]] = {}
    for one in compare(CELLS, read_results(FOLDER.parents[1] / "results"), (0, 1, 2)):
        means = [statistics.mean(each) for each in (one.last, one.best_on_test) if each]
        accuracies = [*one.last, *one.best_on_test, *means]
        accuracies += [] if one.cell.accuracy is None else [one.cell.accuracy]
        found.setdefault(in_full(*one.cell.place).split(",")[0], set()).update(map("{:.2f}".format, accuracies))
    return found


@pytest.mark.parametrize("heading", WHY)
def test_the_accuracies_that_an_essay_names_are_measured_or_printed(heading: str, known: dict[str, set[str]]) -> None:
    """Those with two decimals, among the cells of its network; what has a sign is a difference."""
    network = heading.rpartition(": ")[2].split(",")[0]
    named = set(re.findall(r"(?<![\d.+-])\d\d\.\d\d(?!\d)", WHY[heading]))
    assert named <= known[network] | {FORETOLD, NOT_KEPT}

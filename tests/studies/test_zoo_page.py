"""The page of every method, and what it has to explain."""

from dataclasses import replace
from pathlib import Path

from granet.studies.compare import Comparison, compare
from granet.studies.results import read_results
from granet.studies.tables import Cell, cells
from granet.studies.zoo_page import REMARKS, page


def row(name: str, printed: float | None, *ours: float) -> Comparison:
    return Comparison(Cell("zoo", name, "vgg19", "cifar10", 0.95, printed), ours, test_flops=(0.05,) * len(ours))


def test_every_method_has_a_line() -> None:
    rows = [row("SNIP", 93.43, 92.9), row("DSR", None, 80.0), row("GMP", 93.58)]
    text = page("zoo", rows)
    assert "| SNIP | 93.43 | 92.90, n=1 (-0.53) | 0.050 | - |" in text
    assert "| DSR |  | 80.00, n=1 | 0.050 | - |" in text
    assert "| GMP | 93.58 | - | - | - |" in text


def test_rows_clearly_below_the_paper_are_named() -> None:
    far, near = (replace(row(*one), as_paper=(one[2],), spread=0.1) for one in (("SNIP", 93.43, 92.9), ("SET", 93, 93)))
    assert page("zoo", [near, far]).count("Not explained yet") == 1
    assert "below the paper" not in page("zoo", [near])


def test_every_method_was_run() -> None:
    assert all(one.last for one in compare(cells("zoo"), read_results(Path("results")), [0]))


def test_remarks_stand_below_the_rows_that_were_run() -> None:
    name = "Magnitude at initialisation"
    assert set(REMARKS) <= {cell.row for cell in cells("zoo")}
    assert f"## Remarks\n\n- **{name}**: the last layer" in page("zoo", [row(name, None, 17.7)])
    assert "Remarks" not in page("zoo", [row(name, None), row("DSR", None, 80.0)])

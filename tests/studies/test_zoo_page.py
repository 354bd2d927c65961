"""The page of every method, and what it has to explain."""

from pathlib import Path

from granet.studies.compare import Comparison, compare
from granet.studies.results import read_results
from granet.studies.tables import Cell, cells
from granet.studies.zoo_page import REMARKS, WHY, below, page


def row(name: str, printed: float | None, *ours: float) -> Comparison:
    return Comparison(Cell("zoo", name, "vgg19", "cifar10", 0.95, printed), ours, test_flops=(0.05,) * len(ours))


def test_rows_far_below_the_paper_are_named() -> None:
    rows = [row("SNIP", 93.43, 92.9), row("Deep-R", 89.59, 89.2), row("DSR", None, 80.0), row("GMP", 93.58)]
    assert below(rows) == ["SNIP"]
    text = page("zoo", rows)
    assert "| SNIP | 93.43 | 92.90, n=1 (-0.53) | 0.050 | - |" in text
    assert "| DSR |  | 80.00, n=1 | 0.050 | - |" in text
    assert "| GMP | 93.58 | - | - | - |" in text
    assert "- **SNIP**: not explained yet" in text and "**Deep-R**" not in text


def test_every_row_far_below_the_paper_is_explained() -> None:
    measured = compare(cells("zoo"), read_results(Path("results")), [0])
    assert all(one.last for one in measured)
    assert set(below(measured)) <= set(WHY)


def test_remarks_stand_below_the_rows_that_were_run() -> None:
    name = "Magnitude at initialisation"
    assert set(REMARKS) <= {cell.row for cell in cells("zoo")}
    assert f"## Remarks\n\n- **{name}**: the last layer" in page("zoo", [row(name, None, 17.7)])
    assert "Remarks" not in page("zoo", [row(name, None), row("DSR", None, 80.0)])

"""The page of every method, and what it has to explain."""

from dataclasses import replace
from pathlib import Path

from paper.compare import Comparison, SeedDeviations, compare
from paper.results import read_results
from paper.tables import Cell, cells
from paper.zoo_page import REMARKS, page


def row(name: str, printed: float | None, *ours: float) -> Comparison:
    return Comparison(Cell("zoo", name, "vgg19", "cifar10", 0.95, printed), ours, test_flops=(0.05,) * len(ours))


def test_every_method_has_a_line() -> None:
    rows = [row("SNIP", 93.43, 92.9), row("DSR", None, 80.0), row("GMP", 93.58)]
    text = page("zoo", rows)
    assert "| SNIP | 93.43 | 92.90, n=1 (-0.53) | 0.050 | - |" in text
    assert "| DSR |  | 80.00, n=1 | 0.050 | - |" in text
    assert "| GMP |" not in text and "Not run yet: GMP.\n" in text


def test_rows_clearly_below_the_paper_are_named() -> None:
    far, near = (
        replace(row(*one), best_on_test=(one[2],), deviations=SeedDeviations(0.1, 0.1, 0.1))
        for one in (("Deep-R", 93.43, 92.9), ("SET", 93, 93))
    )
    assert page("zoo", [near, far]).count("Not explained yet") == 1
    assert "below the paper" not in page("zoo", [near])


def test_every_method_was_run_at_95_percent() -> None:
    measured = compare(cells("zoo"), read_results(Path("results")), [0])
    assert all(one.last for one in measured if one.cell.sparsity in (0, 0.95))


def test_every_sparsity_has_its_part_with_the_dense_row() -> None:
    dense = Comparison(Cell("zoo", "Dense", "vgg19", "cifar10", 0.0, 93.85), (93.5,))
    at_90 = Comparison(Cell("zoo", "DSR", "vgg19", "cifar10", 0.9), (93.9,))
    text = page("zoo", [dense, row("DSR", None), at_90])
    low, high = text.split("## 90%")[1].split("## 95%")
    assert "| Dense | 93.85 | 93.50" in low and "| Dense | 93.85 | 93.50" in high
    assert "| DSR |  | 93.90" in low and "Not run yet: DSR.\n" in high


def test_remarks_stand_below_the_rows_that_were_run() -> None:
    name = "Magnitude at initialisation"
    assert set(REMARKS) <= {cell.row for cell in cells("zoo")}
    assert f"## Remarks\n\n- **{name}**: the last layer" in page("zoo", [row(name, None, 17.7)])
    assert "Remarks" not in page("zoo", [row(name, None), row("DSR", None, 80.0)])

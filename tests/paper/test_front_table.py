"""The README's table has what was run at one sparsity, and nothing of other rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paper.compare import Comparison
from paper.front_table import BEGIN, END, front_table, with_results
from paper.tables import Cell
from refusals import refused

CELL = Cell("cifar-main", "RigL", "vgg19", "cifar10", 0.95, accuracy=93.06)


def of(row: str, sparsity: float, *last: float, accuracy: float | None = None) -> Comparison:
    return Comparison(replace(CELL, row=row, sparsity=sparsity, accuracy=accuracy), last)


def test_a_line_has_ours_and_the_papers_number() -> None:
    found = [
        of("Dense", 0, 93.5, 93.6, accuracy=93.85),
        of("RigL", 0.95, 92.72, accuracy=93.06),
        of("RigL", 0.98, 91.0, accuracy=91.98),
        of("GMP", 0.95, accuracy=93.58),
        of("GraNet (s_i=0)", 0.95, 93.63),
        of("SNIP", 0.95, 93.0, accuracy=93.43),
    ]
    head, _, line = front_table(found).splitlines()
    assert head == "| 95% sparse | Dense | RigL | GraNet (s_i=0.5) | GMP | GraNet (s_i=0) |"
    assert line == "| VGG-19, CIFAR-10 | 93.55 (93.85) | 92.72 (93.06) |  | - (93.58) | 93.63 |"
    assert with_results(f"a\n{BEGIN}\nold\n{END}\nb", found) == f"a\n{BEGIN}\n{front_table(found)}{END}\nb"


@pytest.mark.parametrize("readme", [f"a\n{BEGIN}\n", f"{END}\n", ""])
def test_a_readme_without_a_place_for_it(readme: str) -> None:
    with refused(Path("README.md")):
        with_results(readme, [])

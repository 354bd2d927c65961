"""The README's table: a line for each network and data set, at one sparsity, ours with the paper's number beside it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from granet.cli.markdown import markdown_table
from paper.arrangement import measured
from paper.compare import Comparison
from paper.wording import in_full

BEGIN, END = "<!-- results: made by python -m paper cifar-main --write -->", "<!-- end of results -->"
SPARSITY = 0.95
METHODS = ("RigL", "GraNet (s_i=0.5)", "GMP", "GraNet (s_i=0)")
"""Those that the paper ran itself, from a sparse start and from a dense one."""


def with_results(readme: str, comparisons: Sequence[Comparison]) -> str:
    """The README with its table of results made anew."""
    before, found, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"README.md: must have the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{front_table(comparisons)}{END}{after}"


def front_table(comparisons: Sequence[Comparison]) -> str:
    """Of what was measured."""
    lines: list[tuple[str, ...]] = [(f"{SPARSITY:.0%} sparse", "Dense", *METHODS)]
    for place, part in measured(comparisons).items():
        found = {one.cell.row: one for one in part if one.cell.sparsity in (0, SPARSITY)}
        lines.append((in_full(*place), *(_cell(found, row) for row in ("Dense", *METHODS))))
    return markdown_table(lines)


def _cell(found: Mapping[str, Comparison], row: str) -> str:
    one = found.get(row)
    if one is None:
        return ""
    ours = f"{statistics.mean(one.last):.2f}" if one.last else "-"
    return ours if one.cell.accuracy is None else f"{ours} ({one.cell.accuracy:.2f})"

"""Every method on one network and data set, beside the paper where it has a number; as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from granet.cli.markdown import markdown_table
from paper.arrangement import arranged
from paper.compare import Comparison
from paper.prose import prose, sections
from paper.results_page import exceptions
from paper.wording import heading, in_words, mean_of

REMARKS = sections("zoo-remarks")
"""What else a reader of a row should know."""


def page(table: str, comparisons: Sequence[Comparison]) -> str:
    """The whole page: a part for each sparsity."""
    parts = [heading(table), prose("zoo")]
    dense, columns, rows = arranged(comparisons)
    for place, sparsity in enumerate(columns):
        cells = [*([dense] if dense else []), *(each[place] for each in rows.values())]
        parts += [f"## {sparsity:.0%}\n", _table([one for one in cells if one.last])]
        if missing := [one.cell.row for one in cells if not one.last]:
            parts.append(f"Not run yet: {'; '.join(missing)}.\n")
    parts += exceptions(comparisons)
    run = {one.cell.row for one in comparisons if one.last}
    if remarks := [f"- **{row}**: {remark}\n" for row, remark in REMARKS.items() if row in run]:
        parts += ["## Remarks\n", "".join(remarks)]
    return "\n".join(parts)


def _table(cells: Sequence[Comparison]) -> str:
    lines = [("method", "paper", "ours", "inference FLOPs", "training FLOPs")]
    for one in cells:
        printed = "" if one.cell.accuracy is None else f"{one.cell.accuracy:.2f}"
        lines.append((one.cell.row, printed, in_words(one), mean_of(one.test_flops), mean_of(one.train_flops)))
    return markdown_table(lines)

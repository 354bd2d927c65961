"""Where our numbers are clearly below the paper's, and why; as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from paper.compare import Comparison
from paper.prose import sections
from paper.wording import NAMES, difference, in_full

SURE = 2.0
"""A cell this many standard errors below the paper's number needs an explanation."""

_WHICH = f"""\
By more than {SURE:.0f} standard errors, or by less where training broke down.
"""
PROTOCOL = f"By the paper's protocol, the best test epoch, it is within {SURE:.0f} standard errors."

WHY = sections("shortfall")
"""Network, data set and row, after the table if the row differs there, to what the protocol does not explain."""


def below(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The cells whose number is below the paper's by more than the seeds explain, or because some broke down."""
    return [one for one in comparisons if _short_of(one)]


def why(one: Comparison) -> str:
    """The reason, or that none is known yet."""
    if not _short_of(one.at_best_test_epoch):
        return PROTOCOL
    row = _row(one)
    return WHY.get(f"{one.cell.table}: {row}", WHY.get(row, "Not explained yet."))


def section(cells: Sequence[Comparison]) -> str:
    """A line for each row of a network and data set, with the cells that have one reason; a long one is told once."""
    lines: dict[tuple[str, str], list[str]] = {}
    names = list(NAMES)
    for one in sorted(cells, key=lambda one: (names.index(one.cell.model), names.index(one.cell.data))):
        cell = one.cell
        at = f" at {cell.sparsity:.0%}" if cell.sparsity else ""
        told = f"{difference(one)}{at} ({difference(one.at_best_test_epoch)} by the paper's protocol)"
        lines.setdefault((_row(one), why(one)), []).append(told)
    first = {reason: row for (row, reason) in reversed(lines) if reason in WHY.values()}
    told = ""
    for (row, reason), each in lines.items():
        known = first.get(reason, row)
        told += f"- **{row}**: {', '.join(each)}. {reason if known == row else f'As for {known}.'}\n"
    return f"## Clearly below the paper\n\n{_WHICH}\n{told}"


def _row(one: Comparison) -> str:
    return f"{in_full(*one.cell.place)}, {one.cell.row}"


def _short_of(one: Comparison) -> bool:
    if one.difference is None:
        return False
    if one.broke_down:
        return one.difference < 0
    return one.standard_error is not None and one.difference < -SURE * one.standard_error

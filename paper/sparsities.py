"""Networks that ended less or more sparse than the column they are in; as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from paper.compare import Comparison

ROUNDING = 5e-5
"""A sparsity closer than this is printed as the one asked for."""

_WHY = "STR's thresholds may leave fewer weights than asked for, and these stay.\n"


def sparsities_section(comparisons: Sequence[Comparison]) -> str:
    """A line for each row whose sparsity follows from other settings; or nothing."""
    rows: dict[str, list[str]] = {}
    for one in comparisons:
        asked = one.cell.sparsity
        ended = statistics.mean(one.sparsities or [asked])
        if ended and abs(ended - asked) > ROUNDING:  # a narrow dense network has no target to miss
            rows.setdefault(one.cell.row, []).append(f"{ended:.2%} in place of {asked:.0%}")
    lines = [f"- **{row}**: {', '.join(off)}.\n" for row, off in rows.items()]
    return f"## Not exactly as sparse as asked for\n\n{_WHY}\n{''.join(lines)}" if lines else ""

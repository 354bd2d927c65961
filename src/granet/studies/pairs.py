"""What each half of GraNet adds to the other, told by methods that have one half alone; as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from granet.markdown import markdown_table
from granet.studies.compare import Comparison, Lead, lead, mean_lead
from granet.studies.wording import in_points

PAIRS = (("GraNet (s_i=0.5)", "RigL"), ("GraNet (s_i=0)", "GMP"))
"""Both of a pair start alike. RigL regenerates at a constant sparsity; GMP prunes gradually and regenerates nothing."""

_INTRODUCTION = """\
What gradual pruning adds to regeneration (RigL has that alone), and regeneration to gradual pruning (GMP): differences
between our runs' last epochs with their standard errors, and in parentheses those between the paper's numbers.
"""


def section(columns: Sequence[float], rows: Mapping[str, Sequence[Comparison]]) -> str:
    """A line for each pair of which both were run at some sparsity; empty if there is none."""
    lines = [("", *(f"{column:.0%}" for column in columns), "mean")]
    for name, other in PAIRS:
        pairs = list(zip(rows.get(name, ()), rows.get(other, ()), strict=False))
        leads = {one.cell.sparsity: lead(one, two) for one, two in pairs if one.last and two.last}
        if leads:
            printed = {one.cell.sparsity: _printed(one, two) for one, two in pairs}
            cells = (_cell(leads.get(column), printed.get(column)) for column in columns)
            known = [printed[sparsity] for sparsity in leads]
            lines.append((f"{name} - {other}", *cells, _cell(mean_lead(list(leads.values())), _mean(known))))
    return f"{_INTRODUCTION}\n{markdown_table(lines)}" if len(lines) > 1 else ""


def _printed(one: Comparison, other: Comparison) -> float | None:
    both = one.cell.accuracy, other.cell.accuracy
    return None if both[0] is None or both[1] is None else both[0] - both[1]


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return statistics.mean(known) if known else None


def _cell(ours: Lead | None, printed: float | None) -> str:
    if ours is None:
        return "-"
    return in_points(*ours) + ("" if printed is None else f" ({printed:+.2f})")

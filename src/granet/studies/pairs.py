"""What each half of GraNet adds to the other, compared with methods that have only one half; as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from granet.studies.compare import Comparison, Lead, lead, mean_lead
from granet.studies.markdown import markdown_table
from granet.studies.wording import in_points

PAIRS = (("GraNet (s_i=0.5)", "RigL"), ("GraNet (s_i=0)", "GMP"))
"""Both of a pair start alike. RigL regenerates at a constant sparsity; GMP prunes gradually and regenerates nothing."""

_INTRODUCTION = """\
What gradual pruning adds to regeneration (RigL has that alone), and regeneration to gradual pruning (GMP): differences
between the last epochs of our runs with their standard errors, and in parentheses those between the paper's numbers.
"""


def pairs_section(columns: Sequence[float], rows: Mapping[str, Sequence[Comparison]]) -> str:
    """A line for each pair of which both were run at some sparsity; empty if there is none."""
    lines = [("", *(f"{column:.0%}" for column in columns), "mean")]
    lines += [(name, *cells) for name, cells in pairs(rows).items()]
    return f"{_INTRODUCTION}\n{markdown_table(lines)}" if len(lines) > 1 else ""


def pairs(rows: Mapping[str, Sequence[Comparison]]) -> dict[str, list[str]]:
    """For each pair that was run, by name: the differences at all sparsities, and last their mean."""
    found = {}
    for name, other in PAIRS:
        both = zip(rows.get(name, ()), rows.get(other, ()), strict=False)
        each = [(lead(one, two), _printed(one, two)) if one.last and two.last else None for one, two in both]
        if run := [cell for cell in each if cell]:
            mean = mean_lead([ours for ours, _ in run]), _mean([printed for _, printed in run])
            found[f"{name} - {other}"] = [_cell(*cell) if cell else "-" for cell in (*each, mean)]
    return found


def _printed(one: Comparison, other: Comparison) -> float | None:
    both = one.cell.accuracy, other.cell.accuracy
    return None if both[0] is None or both[1] is None else both[0] - both[1]


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return statistics.mean(known) if known else None


def _cell(ours: Lead, printed: float | None) -> str:
    return in_points(*ours) + ("" if printed is None else f" ({printed:+.2f})")

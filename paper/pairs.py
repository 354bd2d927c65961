"""What each half of GraNet adds to the other, compared with methods that have only one half; as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from granet.cli.markdown import markdown_table
from paper.compare import Comparison, Lead, lead, mean_lead
from paper.prose import prose
from paper.wording import in_points

PAIRS = (("GraNet (s_i=0.5)", "RigL"), ("GraNet (s_i=0)", "GMP"))
"""Both of a pair start alike. RigL regenerates at a constant sparsity; GMP prunes gradually and regenerates nothing."""

_BROKEN = "The mean leaves out the sparsities at which a run broke down.\n"


def pairs_section(columns: Sequence[float], rows: Mapping[str, Sequence[Comparison]]) -> str:
    """A line for each pair of which both were run at some sparsity; empty if there is none."""
    lines = [("", *(f"{column:.0%}" for column in columns), "mean")]
    lines += [(name, *cells) for name, cells in pairs(rows).items()]
    if len(lines) == 1:
        return ""
    compared = {row for pair in PAIRS for row in pair}
    broken = any(one.broke_down for row in compared for one in rows.get(row, ()))
    return f"{prose('pairs')}{_BROKEN if broken else ''}\n{markdown_table(lines)}"


def pairs(rows: Mapping[str, Sequence[Comparison]]) -> dict[str, list[str]]:
    """For each pair that was run, by name: the differences at all sparsities, and last their mean."""
    found = {}
    for name, other in PAIRS:
        both = list(zip(rows.get(name, ()), rows.get(other, ()), strict=False))
        run = [pair for pair in both if all(one.last for one in pair)]
        if run:
            each = [_cell(lead(*pair), _printed(*pair)) if pair in run else "-" for pair in both]
            found[f"{name} - {other}"] = [*each, _mean_cell(run)]
    return found


def _mean_cell(run: Sequence[tuple[Comparison, Comparison]]) -> str:
    sound = [pair for pair in run if not any(one.broke_down for one in pair)]
    if not sound:
        return "-"
    return _cell(mean_lead([lead(*pair) for pair in sound]), _mean([_printed(*pair) for pair in sound]))


def _printed(one: Comparison, other: Comparison) -> float | None:
    both = one.cell.accuracy, other.cell.accuracy
    return None if both[0] is None or both[1] is None else both[0] - both[1]


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return statistics.mean(known) if known else None


def _cell(ours: Lead, printed: float | None) -> str:
    return in_points(*ours) + ("" if printed is None else f" ({printed:+.2f})")

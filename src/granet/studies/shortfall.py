"""Where our numbers are clearly below the paper's, and why; as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from granet.markdown import markdown_table
from granet.studies.compare import Comparison
from granet.studies.wording import NAMES, difference

SURE = 2.0
"""Standard errors below the paper's number from which on a cell is explained."""

PROTOCOL = f"The choice of the epoch: by the paper's own, what is missing is within {SURE:.0f} standard errors."

WHY: Mapping[tuple[str, str], str] = {
    ("GraSP", "cifar10"): "The paper took the number from another work, which trained in its own way.",
    ("SynFlow", "cifar10"): "As for GraSP; and see [zoo](zoo.md).",
    ("SIS", "cifar10"): "The number is that of its authors; see [zoo](zoo.md).",
}
"""Row and data set: what the protocol does not explain."""


def below(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The cells whose number is below the paper's by more than the seeds explain."""
    return [one for one in comparisons if _short_of(one)]


def why(one: Comparison) -> str:
    """The reason, or that none is known yet."""
    if not _short_of(one.by_papers_protocol):
        return PROTOCOL
    return WHY.get((one.cell.row, one.cell.data), "Not explained yet.")


def section(cells: Sequence[Comparison]) -> str:
    """A line for each of these cells."""
    lines = [("cell", "last epoch", "by the paper's protocol", "why")]
    for one in cells:
        cell, both = one.cell, (difference(one), difference(one.by_papers_protocol))
        where = f"{NAMES[cell.model]}, {NAMES[cell.data]}, {cell.row}"
        where += f", {cell.sparsity:.0%}" if cell.sparsity else ""
        lines.append((where, *both, why(one)))
    return f"## More than {SURE:.0f} standard errors below the paper\n\n{markdown_table(lines)}"


def _short_of(one: Comparison) -> bool:
    error = one.standard_error
    return one.difference is not None and error is not None and one.difference < -SURE * error

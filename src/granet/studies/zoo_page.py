"""Every method on one network, data set and sparsity, beside the paper where it has a number; as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from granet.studies.compare import Comparison, seed_spread
from granet.studies.results_page import heading, in_words, mean_of

_INTRODUCTION = """\
Every method that trains a network, on VGG-19 and CIFAR-10 at 95 % sparsity, for 160 epochs by the same trainer; dense
networks are the whole one and, as Small-Dense, one so narrow that it has as few weights. Accuracy is that of the last
epoch on test images in percent, over n seeds; in parentheses the difference from the paper's number, where it has one.
FLOPs are shares of the whole dense network's; methods that start from a finished run do not count that. `-` is not run
yet; which start of STR's thresholds leads to this sparsity is not known yet.
"""

BELOW = 0.5
"""Points below the paper's number from which on a row is explained."""

WHY: Mapping[str, str] = {}
"""Why a row is that far below."""


def page(table: str, comparisons: Sequence[Comparison]) -> str:
    """The whole page, with a line for every row that is far below the paper."""
    spread = seed_spread(comparisons)
    lines = ["| method | paper | ours | inference FLOPs | training FLOPs |", "| --- | --- | --- | --- | --- |"]
    for one in comparisons:
        printed = "" if one.cell.accuracy is None else f"{one.cell.accuracy:.2f}"
        shown = (one.cell.row, printed, in_words(one, spread), mean_of(one.test_flops), mean_of(one.train_flops))
        lines.append(f"| {' | '.join(shown)} |")
    parts = [heading(table), _INTRODUCTION, "\n".join(lines) + "\n"]
    if far := below(comparisons):
        explained = [f"- **{row}**: {WHY.get(row, 'not explained yet')}" for row in far]
        parts += [f"## More than {BELOW} points below the paper\n", "\n".join(explained) + "\n"]
    return "\n".join(parts)


def below(comparisons: Sequence[Comparison]) -> list[str]:
    """The rows that are far below the paper."""
    return [one.cell.row for one in comparisons if one.difference is not None and one.difference < -BELOW]

"""A table of the paper with our numbers beside it, as Markdown; made only from the result files."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from granet.cli.markdown import markdown_table
from paper.arrangement import arranged, measured
from paper.compare import BROKEN, Comparison, by_place
from paper.pairs import pairs_section
from paper.prose import prose
from paper.shortfall import below, section
from paper.sparsities import sparsities_section
from paper.wording import NAMES, heading, in_words

_LINES = "Solid lines are ours, dashed ones the paper's."
_THIN = "Thin are rows that the paper did not run itself."


def page(table: str, comparisons: Sequence[Comparison], picture: str | None = None) -> str:
    """The whole page of one table, with its figure, by default of its own name, if anything was measured."""
    printed = any(one.cell.accuracy is not None for one in comparisons)
    other = [*_borrowed(comparisons), *_readings(comparisons)]
    cells = prose("printed" if printed else "unprinted")
    parts = [heading(table), cells, *other, prose("errors", broken=BROKEN)]
    if measured(comparisons):
        parts.append(f"![accuracy against sparsity]({picture or table}.png)\n")
        if printed:
            parts.append(f"{_LINES} {_THIN}\n" if other else f"{_LINES}\n")
    for (model, data), part in by_place(comparisons).items():
        parts.append(f"## {NAMES[model]} on {NAMES[data]}\n")
        parts.append(_table(part, "method", _cell, every_row=True))
        if printed and any(one.last for one in part):
            parts.append(_best_on_test_section(part))
            if compared := pairs_section(*arranged(part)[1:]):
                parts.append(compared)
    return "\n".join([*parts, *exceptions(comparisons)])


def _borrowed(comparisons: Sequence[Comparison]) -> list[str]:
    """Which rows the paper did not run: it prints no deviation for them."""
    cells = [one.cell for one in comparisons]
    rows = dict.fromkeys(cell.row for cell in cells if cell.accuracy is not None and cell.std is None)
    told = f"It took these rows from other works, which may have chosen and averaged otherwise: {', '.join(rows)}.\n"
    return [told] if rows else []


def _readings(comparisons: Sequence[Comparison]) -> list[str]:
    """Which rows have their numbers from another row."""
    rows = dict.fromkeys(one.cell.row for one in comparisons if one.cell.other_reading)
    told = f"Other readings of the paper, and trials, compared with the same numbers: {'; '.join(rows)}.\n"
    return [told] if rows else []


def exceptions(comparisons: Sequence[Comparison]) -> list[str]:
    """The sections on cells that differ from what one would expect: clearly below the paper, or at another sparsity."""
    far = below(comparisons)
    return [part for part in (section(far) if far else "", sparsities_section(comparisons)) if part]


def _table(part: Sequence[Comparison], corner: str, cell: Callable[[Comparison], str], every_row: bool) -> str:
    """A line for each row, or for those that were run."""
    dense, columns, rows = arranged(part)
    lines = [(corner, *(f"{column:.0%}" for column in columns))]
    for name, cells in (({"Dense": [dense]} if dense else {}) | rows).items():
        if every_row or any(one.last for one in cells):
            lines.append((name, *map(cell, cells)))
    return markdown_table(lines)


def _best_on_test_section(part: Sequence[Comparison]) -> str:
    """The rows that were run, as the paper would have reported them, and how far they are from it together."""
    chosen = [one.at_best_test_epoch for one in part]
    higher = f"in the median run {_higher(part):.2f} higher"
    parts = [
        f"By the paper's protocol, the best test epoch at the final sparsity ({higher}):\n",
        _table(chosen, "method", _cell, every_row=False),
    ]
    own = [one for one in chosen if one.difference is not None and one.cell.own_std is not None]
    sound = [one.difference for one in own if one.difference is not None and not one.broke_down]
    if len(sound) > 1:
        which = "" if len(sound) == len(own) else ", without those where a run broke down,"
        parts.append(
            f"Of the cells that the paper ran itself, the {len(sound)} that we ran too{which} are"
            f" {statistics.mean(sound):+.2f} from it on average, with a deviation of {statistics.stdev(sound):.2f}"
            " between them.\n"
        )
    return "\n".join(parts)


def _higher(part: Iterable[Comparison]) -> float:
    """By how many points the best test epoch is above the last one: a median, since a run may break down at its end."""
    return statistics.median(a - b for one in part for a, b in zip(one.best_on_test, one.last, strict=True))


def _cell(one: Comparison) -> str:
    """Of the page's table: ours and the difference from the paper, or the paper's number alone."""
    printed = one.cell.accuracy
    missing = "-" if one.cell.recipes(0) else "no recipe yet"
    return in_words(one) if one.last or printed is None else f"{missing} (paper {printed:.2f})"

"""The page of variants past the paper, compared with unchanged GraNet: accuracy and FLOPs, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from granet.cli.markdown import markdown_table
from paper.arrangement import arranged, measured
from paper.compare import Comparison, by_place, lead
from paper.prose import prose
from paper.wording import NAMES, heading, in_points, in_words, mean_of

PLAIN = "GraNet (s_i=0)"
"""The row that the others change."""

BEST, RECIPE = "+ cosine learning rate", "cifar100-vgg19-cosine"
"""The row with the best accuracy at the highest sparsity, and the recipe made from it."""


def page(table: str, comparisons: Sequence[Comparison]) -> str:
    """The whole page, with its figure if anything was measured."""
    best = BEST.removeprefix("+ ")
    parts = [heading(table), prose("beyond", plain=PLAIN, recipe=RECIPE, best=best)]
    if measured(comparisons):
        parts.append(f"![accuracy against FLOPs]({table}.png)\n")
    for (model, data), part in by_place(comparisons).items():
        dense = [one for one in part if one.cell.sparsity == 0]
        _, columns, rows = arranged(part)
        for place, sparsity in enumerate(columns):
            parts.append(f"## {NAMES[model]} on {NAMES[data]}, {sparsity:.0%}\n")
            parts.append(_table([*dense, *(cells[place] for cells in rows.values())]))
    return "\n".join(parts)


def _table(cells: Sequence[Comparison]) -> str:
    lines = [("method", "accuracy", "difference", "inference FLOPs", "training FLOPs")]
    plain = next(one for one in cells if one.cell.row == PLAIN)
    for one in cells:
        difference = "" if one is plain else _difference(one, plain)
        lines.append((one.cell.row, in_words(one), difference, mean_of(one.test_flops), mean_of(one.train_flops)))
    return markdown_table(lines)


def _difference(one: Comparison, plain: Comparison) -> str:
    return in_points(*lead(one, plain)) if one.last and plain.last else "-"

"""Comparisons in the order of a table: by network and data set, then by row and sparsity."""

from __future__ import annotations

from collections.abc import Sequence

from paper.compare import Comparison, by_place


def measured(comparisons: Sequence[Comparison]) -> dict[tuple[str, str], list[Comparison]]:
    """The cells of each network and data set of which there are results."""
    return {place: part for place, part in by_place(comparisons).items() if any(one.last for one in part)}


def arranged(part: Sequence[Comparison]) -> tuple[Comparison | None, list[float], dict[str, list[Comparison]]]:
    """The dense cell, the sparsities, and the cells of each row in their order."""
    dense = next((one for one in part if one.cell.sparsity == 0), None)
    columns = sorted({one.cell.sparsity for one in part if one.cell.sparsity > 0})
    rows: dict[str, list[Comparison]] = {}
    for one in part:
        if one.cell.sparsity > 0:
            rows.setdefault(one.cell.row, []).append(one)
    return dense, columns, {name: sorted(cells, key=lambda one: one.cell.sparsity) for name, cells in rows.items()}

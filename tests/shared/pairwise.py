"""Tables in place of full products: every two values meet in some row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

Row = dict[str, str]
Cell = tuple[str, str]


def pairwise(columns: Mapping[str, Sequence[str]], fits: Callable[[Row], bool]) -> list[Row]:
    """Few rows in which any two values of two columns occur together, wherever a row that ``fits`` has both.

    ``fits`` is asked of unfinished rows, too: it is false as soon as no column yet to come could mend the row. Greedy,
    and the same each time: a row begins with a pair that is missing and takes the values with most missing pairs, and
    of those the rarest.
    """
    cells = [[(name, value) for value in values] for name, values in columns.items()]
    missing = {frozenset(pair): None for two in combinations(cells, 2) for pair in product(*two)}
    used: Counter[Cell] = Counter()

    def finished(row: Row) -> Row | None:
        if not fits(row):
            return None
        name = next((name for name in columns if name not in row), None)
        if name is None:
            return {name: row[name] for name in columns}

        def merit(value: str) -> tuple[int, int]:
            cell = name, value
            return sum(frozenset({cell, other}) in missing for other in row.items()), -used[cell]

        best_first = sorted(columns[name], key=merit, reverse=True)
        return next((done for value in best_first if (done := finished(row | {name: value}))), None)

    rows = []
    while missing:
        pair = next(iter(missing))
        if row := finished(dict(pair)):
            rows.append(row)
            used.update(row.items())
        for met in map(frozenset, combinations(row.items(), 2)) if row else [pair]:
            missing.pop(met, None)
    return rows

"""Tables in Markdown, as the pages in `docs/` have them."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a table, the first as its header; each line ends with a line break.

    A row may be shorter than the header: the cells it lacks are empty.

    >>> print(markdown_table([("method", "90%", "95%"), ("Dense", "93.5")]), end="")
    | method | 90% | 95% |
    | --- | --- | --- |
    | Dense | 93.5 | |
    """
    columns = len(rows[0])
    lines = [f"| {' | '.join(row)} |{' |' * (columns - len(row))}" for row in rows]
    lines.insert(1, "|" + " --- |" * columns)
    return "\n".join(lines) + "\n"

"""Pieces of HTML. Every text that comes in is escaped here; what goes out is markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files


@dataclass(frozen=True)
class Cell:
    """A cell of a table: a number stands right; the `colour` of a row's heading shows as a swatch before the text."""

    text: str
    number: bool = False
    colour: str | None = None


def number(text: str) -> Cell:
    return Cell(text, number=True)


def table(caption: str, rows: Sequence[Mapping[str, Cell]]) -> str:
    """A table in a container of its own that scrolls. A row maps titles to cells; its first cell is its heading."""
    titles = "".join(_tag("th", title, cell.number, ' scope="col"') for title, cell in rows[0].items())
    body = "\n".join(f"<tr>{_row(*row.values())}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def figure(svg: str, caption: str) -> str:
    """An `<svg>` element with words below it."""
    return f'<figure><div class="drawing">{svg}</div><figcaption>{escape(caption)}</figcaption></figure>'


def swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{escape(colour)}"></span>'


def document(title: str, body: str) -> str:
    """A page that needs nothing but itself."""
    style = files("granet.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _row(heading: Cell, *cells: Cell) -> str:
    mark = "" if heading.colour is None else swatch(heading.colour)
    first = _tag("th", heading.text, heading.number, ' scope="row"', mark)
    return first + "".join(_tag("td", cell.text, cell.number) for cell in cells)


def _tag(tag: str, text: str, right: bool, attributes: str = "", mark: str = "") -> str:
    side = ' class="number"' if right else ""
    return f"<{tag}{attributes}{side}>{mark}{escape(text)}</{tag}>"

"""What the pages say in words: Markdown files in `paper/text`."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "text"


def prose(name: str, **values: object) -> str:
    """The text of that name as it stands in its file, with these values in its `{fields}`."""
    return _read(name).format(**values)


def sections(name: str) -> dict[str, str]:
    """The parts of a file by their headings, each in one line; headings that stand together share what follows."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    for part in re.split(r"^## ", _read(name), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        waiting.append(heading)
        if said := " ".join(text.split()):
            found |= dict.fromkeys(waiting, said)
            waiting = []
    return found


def _read(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")

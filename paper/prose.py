"""What the pages say in words: Markdown files in `paper/text`."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "text"


def prose(name: str, **values: object) -> str:
    """The text of that name as it stands in its file, with these values in its `{fields}`."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8").format(**values)

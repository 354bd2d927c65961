"""From run folders to the page and its picture."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from granet.files import atomic, write_text, writing_to
from granet.report.figures import png
from granet.report.labels import shown_runs
from granet.report.page import page
from granet.report.read import ReportedRun, find_runs, read_run


def write_report(paths: Sequence[Path], out: Path) -> list[ReportedRun]:
    """Write the page about the runs in `paths` to `out`, and the PNG beside it; return the runs.

    Everything is read and drawn before the first byte is written. ValueError for whatever is wrong with the input.
    """
    if out.suffix != ".html":
        raise ValueError(f"out={str(out)!r}: must end in .html")
    if not out.parent.is_dir() or out.is_dir():
        raise ValueError(f"out={str(out)!r}: must be a file in a folder that exists")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("report: needs matplotlib, pip install 'granet[plots]'")
    try:
        runs = [read_run(folder) for folder in find_runs(paths)]
    except OSError as error:
        raise ValueError(f"{error.filename}: cannot be read ({error.strerror})") from error
    shown = shown_runs(runs)
    picture, text = png(shown), page(shown)
    with writing_to("out", out, "must be a file that can be written"):
        with atomic(out.with_suffix(".png")) as temporary:
            temporary.write_bytes(picture)
        write_text(out, text)
    return runs

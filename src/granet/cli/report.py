"""`granet report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Report:
    """Write one page about some runs: an HTML file that needs nothing but itself, and a PNG beside it.

    The page has the runs' results, curves, the sparsity of every layer and how it came about. Runs that are not
    finished are shown as far as they got. Needs matplotlib: pip install 'granet[plots]'.
    """

    runs: Annotated[tuple[Path, ...], Positional]
    """Run folders, or folders of run folders, such as `runs`."""
    out: Path = Path("report.html")
    """The page. The picture has the same name with `.png`."""

    def run(self, console: Console) -> None:
        """Read, draw and write."""
        if not self.runs:
            raise ValueError("runs=(): must name one run folder or more")
        from granet.report import write_report

        runs = write_report(self.runs, self.out)
        for run in runs:
            if run.summary is None:
                console.print(f"not finished: {run.path}", soft_wrap=True)
        count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        console.print(f"{count} in {self.out} and {self.out.with_suffix('.png')}", soft_wrap=True)

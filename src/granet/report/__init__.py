"""One page about some runs: read their folders, draw, write. Needs matplotlib."""

from granet.report.read import ReportedRun, find_runs, read_run
from granet.report.write import write_report

__all__ = ["ReportedRun", "find_runs", "read_run", "write_report"]

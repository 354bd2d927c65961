"""Values as a reader meets them."""

from __future__ import annotations

import math

from granet.report.read import ReportedRun


def share(value: float | None, digits: int) -> str:
    """A percentage; a dash for what is not known."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}%}"


def state(run: ReportedRun) -> str:
    """How far the run got."""
    if run.summary is not None:
        return "finished"
    return f"unfinished, after epoch {len(run.records)} of {run.recipe.total_epochs}"

"""Values as a reader meets them."""

from __future__ import annotations

import math

from granet.report.read import ReportedRun


def share(value: float | None, digits: int) -> str:
    """A percentage; a dash for what is not known."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}%}"


def state(run: ReportedRun) -> str:
    """How far the run got."""
    lost = diverged(run)
    how = "" if lost is None else f", loss not finite from epoch {lost} on"
    if run.summary is not None:
        return f"finished{how}"
    return f"unfinished, after epoch {len(run.records)} of {run.recipe.total_epochs}{how}"


def diverged(run: ReportedRun) -> int | None:
    """The first epoch whose loss is not a finite number."""
    return next((record.epoch for record in run.records if not math.isfinite(record.train_loss)), None)


def short(name: str, longest: int = 40) -> str:
    """The name without its middle, if it is too long for a figure."""
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"

"""Runs at the same time on one device: processes on a CPU, streams of one process on a GPU.

Either way a run that fails does not affect the others, and every event reaches the caller in its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from granet.studies.jobs.job import Event, Place
from granet.studies.jobs.processes import in_processes
from granet.studies.jobs.threads import in_threads
from granet.training.recipe import Recipe

__all__ = ["Event", "Place", "run_jobs"]


def run_jobs(recipes: Sequence[Recipe], place: Place, packed: int, stop: Callable[[], bool]) -> Iterator[Event]:
    """Train the recipes, `packed` of them at a time. When `stop` says True, all are saved and left."""
    events = in_threads if place.device.type == "cuda" else in_processes
    return events(recipes, place, packed, stop)

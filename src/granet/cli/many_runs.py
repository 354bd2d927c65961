"""Many runs of one command: trained with a view of them, or listed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from rich.console import Console

from granet.cli.console import SweepView
from granet.data import load
from granet.studies.jobs import Event, Place, run_jobs
from granet.training import Recipe, RunDir
from granet.training.checkpoint import remove_checkpoints
from granet.training.fingerprint import fingerprint
from granet.training.interrupt import stop_signals
from granet.training.rundir import run_name


def train_all(console: Console, recipes: Sequence[Recipe], place: Place, packed: int) -> Iterator[Recipe]:
    """Train what is not finished, with a view of it; each recipe is handed on when its run is done.

    Runs that fail are named at the end, and the exit code is then 1. Those that another process trains are left to it,
    with all that start from them.
    """
    folders = {recipe: RunDir.find(place.out, recipe) for recipe in recipes}
    done = {recipe: folder for recipe, folder in folders.items() if folder.summary is not None}
    left = [recipe for recipe in folders if recipe not in done]
    images = cache(lambda name: fingerprint(load(name, data_dir=place.data_dir)))
    for recipe, folder in done.items():
        folder.check_images(images(recipe.data))
        remove_checkpoints(folder.path)  # it may have been killed before it did so itself
    if done:
        console.print(f"{len(done)} of {len(folders)} runs are done already")
    yield from done
    failures: dict[str, str] = {}
    elsewhere: set[str] = set()
    with stop_signals() as stop, SweepView(console, len(left)) as view:
        for event in run_jobs(left, place, packed, stop):
            name = run_name(event.recipe)
            if event.error is not None and event.recipe.parent in elsewhere:  # which is not finished yet
                event = Event(event.recipe, elsewhere=True)
            view.show(name, event)
            if event.elsewhere:
                elsewhere.add(name)
            elif event.error is not None:
                failures[name] = event.error
            elif event.record is None:
                yield event.recipe
        if stop():
            raise KeyboardInterrupt
    if elsewhere:
        console.print(f"{len(elsewhere)} of {len(folders)} runs are left to another process")
    for name, error in failures.items():
        print(f"granet: {name} failed: {error}", file=sys.stderr)
    if failures:
        sys.exit(1)


def list_runs(console: Console, recipes: Iterable[Recipe], out: Path) -> None:
    """A line for each run: how far it is, and its name."""
    for recipe in recipes:
        console.print(f"{_state(out, recipe):<14}{run_name(recipe)}", soft_wrap=True)


def _state(out: Path, recipe: Recipe) -> str:
    folder = RunDir.find(out, recipe)
    if folder.summary is not None:
        return "done"
    if not (folder.path / "config.json").exists():
        return "to do"
    metrics = folder.path / "metrics.jsonl"
    done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0  # a line that is not yet whole does not count
    return f"epoch {done}"

"""When the processes of runs are started, told to stop and waited for: with stand-ins that only note it."""

import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from granet.studies.jobs import Event, Place, job
from granet.studies.jobs.processes import INTERRUPTED, _child, in_processes
from granet.training import Recipe

RECIPES = [Recipe(seed=seed) for seed in range(3)]
CODES = [(0, []), (INTERRUPTED, []), (-9, ["its process ended with code -9"])]


class Process:
    """Sends one event and ends, or goes on until it is told to stop."""

    def __init__(self, system: "System", pipe: Any, recipe: Recipe, threads: int) -> None:
        self._system, self._pipe, self._recipe = system, pipe, recipe
        self.exitcode = system.exitcode
        system.threads = threads

    def start(self) -> None:
        self._note("start")
        if self._system.goes_on:
            self._pipe.send(Event(self._recipe))
            self._kept = os.dup(self._pipe.fileno())

    def terminate(self) -> None:
        self._note("terminate")
        os.close(self._kept)

    def join(self) -> None:
        self._note("join")

    def _note(self, what: str) -> None:
        self._system.notes.append((what, self._recipe.seed))


class System:
    """What `multiprocessing` gives, and what became of the processes."""

    Pipe = staticmethod(multiprocessing.Pipe)

    def __init__(self) -> None:
        self.notes: list[tuple[str, int]] = []
        self.threads = self.exitcode = 0
        self.goes_on = False

    def set_forkserver_preload(self, modules: Sequence[str]) -> None:
        """There is nothing to import."""

    def Process(self, target: object, args: tuple[Any, Recipe, Place, int]) -> Process:
        pipe, recipe, _, threads = args
        return Process(self, pipe, recipe, threads)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    one = System()
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: one)
    return one


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(torch.device("cpu"), tmp_path)


def test_as_many_train_at_once_as_are_asked_for(system: System, place: Place) -> None:
    assert list(in_processes(RECIPES, place, 1, lambda: False)) == []
    assert system.notes == [(what, seed) for seed in range(3) for what in ("start", "join")]
    system.notes.clear()
    assert list(in_processes(RECIPES, place, 2, lambda: False)) == []
    assert system.notes[:2] == [("start", 0), ("start", 1)] and system.notes.index(("start", 2)) > 2


@pytest.mark.parametrize(("packed", "each"), [(1, 8), (3, 2), (16, 1)])
def test_they_share_the_threads(
    system: System, place: Place, packed: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert list(in_processes(RECIPES, place, packed, lambda: False)) == []
    assert system.threads == each


def test_none_is_started_after_a_stop_and_those_that_train_are_told_once(system: System, place: Place) -> None:
    system.goes_on = True
    events = in_processes(RECIPES, place, 2, lambda: bool(system.notes))
    assert [event.recipe for event in events] == RECIPES[:1]
    assert system.notes == [("start", 0), ("terminate", 0), ("join", 0)]


def test_they_are_ended_when_nobody_listens_any_more(system: System, place: Place) -> None:
    system.goes_on = True
    events = in_processes(RECIPES, place, 2, lambda: False)
    assert next(events) in [Event(recipe) for recipe in RECIPES[:2]]
    events.close()
    assert system.notes[2:] == [(what, seed) for what in ("terminate", "join") for seed in (0, 1)]


@pytest.mark.parametrize(("code", "errors"), CODES)
def test_only_an_end_that_nobody_asked_for_is_a_failure(
    system: System, place: Place, code: int, errors: list[str]
) -> None:
    system.exitcode = code
    assert [event.error for event in in_processes(RECIPES[:1], place, 1, lambda: False)] == errors


def test_a_run_whose_sweep_is_gone_ends_as_if_it_were_told_to(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise ValueError("no images")  # what goes wrong cannot be told either

    monkeypatch.setattr(job, "Run", lost)
    listener, pipe = multiprocessing.Pipe(duplex=False)
    listener.close()
    with pytest.raises(SystemExit) as end:
        _child(pipe, RECIPES[0], place, torch.get_num_threads())
    assert end.value.code == INTERRUPTED

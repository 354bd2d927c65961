"""When the threads of runs take the next one, stop and are waited for: with stand-ins that only note it."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from granet.studies import jobs
from granet.studies.jobs import Event, Place, job, threads
from granet.studies.jobs.threads import in_threads
from granet.training import Recipe
from granet.training.rundir import TrainedElsewhere, run_name

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

RECIPES = [Recipe(seed=seed) for seed in range(3)]
GPU = torch.device("cuda")
SOON = 30  # seconds that nothing takes unless it never comes
Epochs = Callable[[int, Callable[[], bool]], None]


def until(happens: Callable[[], bool], stop: Callable[[], bool]) -> None:
    """Train on, step by step, until it happens."""
    deadline = time.monotonic() + SOON
    while not happens():
        assert time.monotonic() < deadline
        stop()
        time.sleep(0.001)


class System:
    """What the threads of a sweep call: each run does what the test says, between one epoch and its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notes: list[tuple[str, Any]] = []
        self.made: list[tuple[Any, ...]] = []
        self.build: Callable[[], None] = lambda: None
        self.between: Epochs = lambda seed, stop: None
        self.summary: object = None
        self.local = threading.local()
        monkeypatch.setattr(job, "Run", self._run)
        monkeypatch.setattr(threads, "load", self._load)
        monkeypatch.setattr(threads, "_streams", self._streams)

    def _load(self, name: str, data_dir: Path | None = None) -> str:
        self.notes.append(("load", data_dir))
        return name

    def _streams(self, device: torch.device, count: int) -> list[Any]:
        self.notes.append(("streams", (device, count)))
        return [self._stream(number) for number in range(count)]

    @contextmanager
    def _stream(self, number: int) -> Iterator[None]:
        self.local.stream = number
        yield

    def _run(self, recipe: Recipe, data: str, device: torch.device, out: Path, *, workers: int | None) -> Any:
        self.build()

        def epochs(checkpoint_every: float, stop: Callable[[], bool]) -> Iterator[int]:
            self.made.append((data, device, out, workers, checkpoint_every))
            self.notes.append(("start", recipe.seed))
            yield 1
            self.between(recipe.seed, stop)
            self.notes.append(("end", recipe.seed))

        return SimpleNamespace(epochs=epochs, folder=SimpleNamespace(summary=self.summary))

    def order(self) -> list[tuple[str, int]]:
        return [note for note in self.notes if note[0] in ("start", "end")]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(GPU, tmp_path, data_dir=tmp_path / "images", workers=5, checkpoint_every=7.0)


def test_threads_on_a_gpu_processes_elsewhere(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("in_threads", "in_processes"):
        monkeypatch.setattr(jobs, name, lambda *given, name=name: (name, *given))
    assert jobs.run_jobs(RECIPES, place, 2, bool) == ("in_threads", RECIPES, place, 2, bool)
    elsewhere = replace(place, device=torch.device("cpu"))
    assert jobs.run_jobs(RECIPES, elsewhere, 2, bool) == ("in_processes", RECIPES, elsewhere, 2, bool)


def test_one_thread_trains_all_in_order_and_reads_the_images_once(system: System, place: Place) -> None:
    events = list(in_threads(RECIPES, place, 1, lambda: False))
    assert events == [Event(recipe, record) for recipe in RECIPES for record in (1, None)]
    assert system.order() == [(what, seed) for seed in range(3) for what in ("start", "end")]
    assert [note for note in system.notes if note[0] == "load"] == [("load", place.data_dir)]
    assert system.made == [("digits", GPU, place.out, 5, 7.0)] * 3


@pytest.mark.parametrize(("packed", "at_once"), [(1, 1), (2, 2), (8, 3)])
def test_no_more_threads_than_runs(system: System, place: Place, packed: int, at_once: int) -> None:
    """As many train at once, each thread on its own stream."""
    streams = set()

    def between(seed: int, stop: Callable[[], bool]) -> None:
        streams.add(system.local.stream)
        until(lambda: len(streams) == at_once, stop)

    system.between = between
    errors = [event.error for event in in_threads(RECIPES, place, packed, lambda: False)]
    assert errors == [None] * 6 and system.notes[0] == ("streams", (GPU, at_once))
    assert streams == set(range(at_once))


def test_threads_take_turns_often_while_they_train(system: System, place: Place) -> None:
    before, seen = sys.getswitchinterval(), []
    system.between = lambda seed, stop: seen.append((sys.getswitchinterval(), threading.current_thread().daemon))
    list(in_threads(RECIPES[:1], place, 1, lambda: False))
    assert seen == [(pytest.approx(2e-4), True)]  # a daemon: an interpreter that ends does not wait for it
    assert sys.getswitchinterval() == before != pytest.approx(2e-4)


def test_none_is_begun_after_a_stop(system: System, place: Place) -> None:
    stop = threading.Event()
    system.between = lambda seed, _: stop.set()
    events = list(in_threads(RECIPES, place, 1, stop.is_set))
    assert events == [Event(RECIPES[0], 1), Event(RECIPES[0])]
    assert system.order() == [("start", 0), ("end", 0)]


def test_a_run_is_told_to_stop_and_that_is_no_failure(system: System, place: Place) -> None:
    asked = threading.Event()

    def between(seed: int, stop: Callable[[], bool]) -> None:
        assert asked.wait(SOON)
        if stop():
            raise KeyboardInterrupt

    system.between = between
    events = in_threads(RECIPES, place, 1, asked.is_set)
    assert next(events) == Event(RECIPES[0], 1)
    asked.set()
    assert list(events) == [] and system.order() == [("start", 0)]


def test_threads_are_waited_for_when_nobody_listens_any_more(system: System, place: Place) -> None:
    def between(seed: int, stop: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SOON
        while not stop() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.2)  # to save takes a while
        system.notes.append(("saved", stop()))
        raise KeyboardInterrupt

    system.between = between
    events = in_threads(RECIPES, place, 2, lambda: False)
    assert next(events).record == next(events).record == 1
    events.close()
    assert system.notes.count(("saved", True)) == 2 and len(system.order()) == 2


def test_a_run_is_built_alone(system: System, place: Place) -> None:
    """Seeds and compilation belong to the whole process: nobody else builds or is within a step."""
    busy: set[str] = set()
    found: list[set[str]] = []
    training, built = set(), []

    def build() -> None:
        found.append(set(busy))
        busy.add("building")
        time.sleep(0.02)
        found.append(busy - {"building"})
        busy.discard("building")
        built.append(set(training))

    def between(seed: int, stop: Callable[[], bool]) -> None:
        training.add(seed)
        while len(built) < len(RECIPES) and not stop():
            busy.add(f"step of {seed}")
            time.sleep(0.001)
            busy.discard(f"step of {seed}")
        training.discard(seed)

    system.build, system.between = build, between
    list(in_threads(RECIPES, place, 3, lambda: False))
    assert found == [set()] * 6
    assert len(built[-1]) == 2  # while the others trained


def test_children_wait_for_their_parent_and_then_train_at_once(
    system: System, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when another run has ended meanwhile."""
    parent, other = RECIPES[:2]
    children = [replace(parent, seed=seed, parent=run_name(parent)) for seed in (2, 3)]
    waited, met = threading.Event(), set()

    def between(seed: int, stop: Callable[[], bool]) -> None:
        if seed == parent.seed:
            until(waited.is_set, stop)
        elif seed != other.seed:
            waited.set()  # if it came too early
            met.add(seed)
            until(lambda: len(met) == 2, stop)

    def sleep(seconds: float) -> None:
        if ("end", other.seed) in system.notes:
            waited.set()
        waited.wait(0.001)

    system.between = between
    monkeypatch.setattr(threads, "time", SimpleNamespace(sleep=sleep))
    events = list(in_threads([*children, parent, other], place, 2, lambda: False))
    assert [event.error for event in events] == [None] * 8
    order = system.order()
    assert all(order.index(("end", parent.seed)) < order.index(("start", child.seed)) for child in children)


@pytest.mark.parametrize("summary", [None, "done"])
def test_a_run_that_another_process_trains_or_has_finished(system: System, place: Place, summary: str | None) -> None:
    def between(seed: int, stop: Callable[[], bool]) -> None:
        if seed == 0:
            raise TrainedElsewhere

    system.between, system.summary = between, summary
    events = list(in_threads(RECIPES[:2], place, 1, lambda: False))
    assert events[1] == Event(RECIPES[0], elsewhere=summary is None) and events[-1] == Event(RECIPES[1])


def test_every_thread_has_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch may hand out one twice."""
    drawn = iter(range(threads.POOL))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(cuda_stream=next(drawn) // 2))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream.cuda_stream)
    assert threads._streams(GPU, 3) == [0, 1, 2]

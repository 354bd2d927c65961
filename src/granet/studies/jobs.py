"""Runs at the same time on one device: processes on a CPU, streams of one process on a GPU.

Either way a run that fails does not affect the others, and every event reaches the caller in its own thread. On a GPU
random layers, such as dropout, draw from one generator that all runs share, so such runs are not repeatable beside
others.
"""

from __future__ import annotations

import multiprocessing
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from granet.data import load
from granet.error_line import error_line, warnings_in_one_line
from granet.training.checkpoint import kept_path
from granet.training.feeds import Data, check_workers
from granet.training.interrupt import stop_signals
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord
from granet.training.run import Run, check_checkpoint_every
from granet.training.rundir import TrainedElsewhere, run_name


@dataclass(frozen=True)
class Place:
    """Where runs read, train and write."""

    device: torch.device
    out: Path
    data_dir: Path | None = None
    workers: int | None = None
    checkpoint_every: float = 60.0

    def __post_init__(self) -> None:
        """Report what is wrong for all runs once, before the first of them."""
        check_workers(self.workers)
        check_checkpoint_every(self.checkpoint_every)


@dataclass(frozen=True)
class Event:
    """What happened to a run: an epoch is done, the run ended, well (no error) or not, or it is not ours to train."""

    recipe: Recipe
    record: EpochRecord | None = None
    error: str | None = None
    elsewhere: bool = False
    """Another process trains it."""


def run_jobs(recipes: Sequence[Recipe], place: Place, packed: int, stop: Callable[[], bool]) -> Iterator[Event]:
    """Train the recipes, `packed` of them at a time. When `stop` says True, all are saved and left."""
    events = in_threads if place.device.type == "cuda" else in_processes
    return events(recipes, place, packed, stop)


def _next(waiting: deque[Recipe], running: Collection[Recipe], out: Path) -> Recipe | None:
    """Take the first recipe that need not wait for another; None if there is none for now.

    A run waits for its parent to be finished, a branch of one only for the state that it starts from.
    """
    coming = {run_name(recipe) for recipe in (*waiting, *running)}
    for recipe in waiting:
        if recipe.parent not in coming or _can_branch(recipe, out):
            waiting.remove(recipe)
            return recipe
    return None


def _can_branch(recipe: Recipe, out: Path) -> bool:
    return recipe.branch_epoch > 0 and kept_path(out / recipe.parent, recipe.branch_epoch).is_file()


# On a CPU: a process for each run.


def in_processes(recipes: Sequence[Recipe], place: Place, packed: int, stop: Callable[[], bool]) -> Iterator[Event]:
    context = multiprocessing.get_context("forkserver")
    # import torch once, with the part that optimizers import later: saves more than a second for each run
    context.set_forkserver_preload(["granet.training", "torch._dynamo"])
    threads = max(1, torch.get_num_threads() // packed)
    waiting = deque(recipes)
    running: dict[Connection, tuple[BaseProcess, Recipe]] = {}
    told = False
    try:
        while (waiting and not stop()) or running:
            while len(running) < packed and not stop():
                recipe = _next(waiting, [recipe for _, recipe in running.values()], place.out)
                if recipe is None:
                    break
                ours, theirs = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(target=_child, args=(theirs, recipe, place, threads))
                process.start()
                theirs.close()
                running[ours] = process, recipe
            if stop() and not told:
                told = True  # only once: a second signal would keep them from saving
                for process, _ in running.values():
                    process.terminate()
            for pipe in wait(list(running), timeout=0.5):
                assert isinstance(pipe, Connection)
                process, recipe = running[pipe]
                try:
                    event = pipe.recv()
                except EOFError:
                    process.join()
                    del running[pipe]
                    # A signal to all may end it, and the fork server, which knows the exit code, before we tell it.
                    if process.exitcode and process.exitcode != INTERRUPTED and not stop():
                        yield Event(recipe, error=f"its process ended with code {process.exitcode}")
                    continue
                yield event
    finally:
        for process, _ in running.values():
            if not told:
                process.terminate()
        for process, _ in running.values():
            process.join()


INTERRUPTED = 130


def _child(pipe: Connection, recipe: Recipe, place: Place, threads: int) -> None:
    """One run in its own process, which ends with the sweep's."""
    torch.set_num_threads(threads)
    sweep = multiprocessing.parent_process()

    def tell(event: Event) -> None:
        try:
            pipe.send(event)
        except BrokenPipeError:  # the sweep is gone; that of a run itself is a failure like any other
            raise KeyboardInterrupt from None

    with warnings_in_one_line(), stop_signals() as stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the sweep passes one signal on
        read = partial(load, recipe.data, data_dir=place.data_dir)
        try:
            _train(recipe, place, read, tell, lambda: stop() or (sweep is not None and not sweep.is_alive()))
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None


# On a GPU: a thread and a stream for each run.


def in_threads(recipes: Sequence[Recipe], place: Place, packed: int, stop: Callable[[], bool]) -> Iterator[Event]:
    events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    waiting = deque(recipes)
    running: list[Recipe] = []
    building = threading.Lock()  # seeds and compilation belong to the whole process
    read = cache(partial(load, data_dir=place.data_dir))
    closing = threading.Event()

    def stopped() -> bool:
        return stop() or closing.is_set()

    def work(stream: AbstractContextManager[object]) -> None:
        try:
            with stream:
                while waiting and not stopped():
                    with building:
                        recipe = _next(waiting, running, place.out)
                        if recipe is not None:
                            running.append(recipe)
                    if recipe is None:  # wait until a parent is far enough
                        time.sleep(0.5)
                        continue
                    try:
                        _train(recipe, place, partial(read, recipe.data), events.put, stopped, building)
                    finally:
                        with building:
                            running.remove(recipe)
        except KeyboardInterrupt:
            pass  # it was asked to stop, and has saved
        finally:
            events.put(None)

    streams = _streams(place.device, min(packed, len(recipes)))
    threads = [threading.Thread(target=work, args=(stream,), daemon=True) for stream in streams]
    with _short_turns():
        for thread in threads:
            thread.start()
        left = len(threads)
        try:
            while left:
                event = events.get()
                if event is None:
                    left -= 1
                else:
                    yield event
        finally:  # also when nobody wants to hear more
            closing.set()
            for thread in threads:
                thread.join()


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let threads take turns often: a run needs the interpreter for a moment in each step, and a run that is being
    compiled would otherwise hold it for 5 ms each time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


POOL = 32
"""The number of streams that torch has for a device; it hands them out in turn."""


def _streams(device: torch.device, count: int) -> list[AbstractContextManager[object]]:
    """A different stream for each thread: a run captures its step on its own while the others train on theirs.

    A single thread stays on the default stream, which tells its runs that they have the GPU to themselves.
    """
    if device.type != "cuda" or count == 1:
        return [nullcontext() for _ in range(count)]
    drawn = [torch.cuda.Stream(device) for _ in range(POOL)]  # type: ignore[no-untyped-call]
    different = {stream.cuda_stream: stream for stream in drawn}
    return [torch.cuda.stream(stream) for stream in list(different.values())[:count]]


def _train(
    recipe: Recipe,
    place: Place,
    read: Callable[[], Data],
    tell: Callable[[Event], None],
    stop: Callable[[], bool],
    building: threading.Lock | None = None,
) -> None:
    """Train one run; whatever goes wrong is reported and does not reach the others."""
    try:
        with building or nullcontext():
            run = Run(recipe, read(), place.device, place.out, workers=place.workers)
        for record in run.epochs(place.checkpoint_every, stop):
            tell(Event(recipe, record))
        tell(Event(recipe))
    except TrainedElsewhere:
        tell(Event(recipe, elsewhere=run.folder.summary is None))  # else it is done, by whomever
    except (Exception, SystemExit) as error:
        tell(Event(recipe, error=error_line(error)))

"""On a CPU: a process for each run."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from granet.data import load
from granet.error_line import warnings_in_one_line
from granet.studies.jobs.gate import Gate
from granet.studies.jobs.job import Event, Place, take_next, train_run
from granet.training.interrupt import stop_signals
from granet.training.recipe import Recipe

INTERRUPTED = 130
"""The exit code of a process that was told to stop, and has saved."""


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
                recipe = take_next(waiting, [recipe for _, recipe in running.values()], place.out)
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
            stopped = lambda: stop() or (sweep is not None and not sweep.is_alive())  # noqa: E731
            train_run(recipe, place, read, tell, stopped, Gate())
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None

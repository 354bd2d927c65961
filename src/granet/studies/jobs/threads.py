"""On a GPU: a thread and a stream for each run.

Random layers, such as dropout, draw from one generator that all runs share, so such runs are not repeatable beside
others.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial

import torch

from granet.data import load
from granet.studies.jobs.gate import Gate
from granet.studies.jobs.job import Event, Place, take_next, train_run
from granet.training.recipe import Recipe


def in_threads(recipes: Sequence[Recipe], place: Place, packed: int, stop: Callable[[], bool]) -> Iterator[Event]:
    events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    waiting = deque(recipes)
    running: list[Recipe] = []
    gate = Gate()
    choosing = threading.Lock()
    read = cache(partial(load, data_dir=place.data_dir))
    closing = threading.Event()

    def stopped() -> bool:
        return stop() or closing.is_set()

    def work(stream: AbstractContextManager[object]) -> None:
        try:
            with stream:
                while waiting and not stopped():
                    with choosing:
                        recipe = take_next(waiting, running, place.out)
                        if recipe is not None:
                            running.append(recipe)
                    if recipe is None:  # wait until a parent is far enough
                        time.sleep(0.5)
                        continue
                    try:
                        train_run(recipe, place, partial(read, recipe.data), events.put, stopped, gate)
                    finally:
                        with choosing:
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

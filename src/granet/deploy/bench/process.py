"""A candidate in a process of its own, where no other has threads, memory or settings; it runs when it is told to."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from granet.deploy.bench.candidates import CANDIDATES
from granet.deploy.bench.turns import turn_of
from granet.deploy.unsupported import Unsupported
from granet.error_line import error_line, first_line


class Outputs(NamedTuple):
    """What it gave for the inputs."""

    arrays: list[NDArray[Any]]
    precision: str


class CandidateProcess:
    """`start` it, then let it take turns. What it cannot do is `Unsupported`, with the reason."""

    def __init__(self, candidate: str, folder: Path, inputs: Path, threads: int) -> None:
        context = get_context("spawn")  # a fork would inherit threads that are not running
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, candidate, folder, inputs, threads), daemon=True)
        with _environment(OMP_NUM_THREADS=str(threads)):  # PyTorch on ARM minds nothing else
            self._process.start()
        theirs.close()

    def start(self) -> Outputs:
        """Load the network and run it once. Until then it has only begun to import what it needs."""
        return Outputs(*self._ask("start"))

    def turn(self, seconds: float) -> list[float]:
        return list(self._ask(seconds))

    def memory(self) -> int | None:
        """Bytes resident now, over those before it loaded the network; None where the system does not say."""
        found: int | None = self._ask("memory")
        return found

    def _ask(self, what: Any) -> Any:
        try:
            self._pipe.send(what)
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(timeout=5)
            raise Unsupported(f"its process ended with code {self._process.exitcode}") from error
        if isinstance(answer, Unsupported):
            raise answer
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._pipe.close()  # it ends when it hears no more
        self._process.join(timeout=5 if kind is None else 0)
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, candidate: str, folder: Path, inputs: Path, threads: int) -> None:
    """In the process: answers what is asked until nothing more can come."""
    warnings.simplefilter("ignore")
    try:
        for answer in _answers(pipe, candidate, folder, inputs, threads):
            pipe.send(answer)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
    except Exception as error:
        expected = isinstance(error, Unsupported | ValueError)
        pipe.send(Unsupported(first_line(error) if expected else error_line(error)))


def _answers(pipe: Connection, candidate: str, folder: Path, inputs: Path, threads: int) -> Iterator[Any]:
    torch.set_num_threads(threads)
    tensors = tuple(torch.load(inputs))
    for name in CANDIDATES[candidate].needs:
        import_module(name)
    pipe.recv()
    before = resident()
    ready = CANDIDATES[candidate].read(folder, tensors, threads)
    given = ready.call()
    arrays = [np.array(each) for each in ([given] if isinstance(given, torch.Tensor | np.ndarray) else given)]
    yield arrays, ready.precision
    del given, arrays
    turn = turn_of(ready.call)
    while True:
        asked = pipe.recv()
        yield turn(asked) if asked != "memory" else before and (resident() or 0) - before


def resident() -> int | None:
    """Bytes of this process that are in memory; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

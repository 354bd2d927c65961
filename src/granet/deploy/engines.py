"""Which engine runs a plan: the one that is fastest on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable

from granet.deploy.compiled import Engine
from granet.deploy.interpret import Interpreter
from granet.deploy.plan import Plan

ENGINES: dict[str, Callable[[Plan, int], Engine]] = {"torch": lambda plan, threads: Interpreter(plan)}


def check_threads(threads: int | None) -> int:
    most = processors()
    if threads is None:
        return most
    if type(threads) is not int or not 1 <= threads <= most:
        raise ValueError(f"threads={threads!r}: must be from 1 to {most}, the processors of this machine")
    return threads


def processors() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_engine(engine: str | None) -> None:
    if engine is not None and engine not in ENGINES:
        raise ValueError(f"engine={engine!r}: must be one of {', '.join(ENGINES)}")


def engine_for(plan: Plan, threads: int, engine: str | None) -> tuple[str, Engine]:
    name = engine or "torch"
    return name, ENGINES[name](plan, threads)


def choose(plan: Plan, threads: int, engine: str | None) -> tuple[str, Engine]:
    name = engine or "torch"
    return name, ENGINES[name](plan, threads)

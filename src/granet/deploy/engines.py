"""Which engine runs a plan: the fastest on this machine, found by measurement once and then remembered."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor

from granet.deploy.compiled import Engine
from granet.deploy.halves import Inputs, check_halves, random_inputs
from granet.deploy.interpret import Interpreter
from granet.deploy.measured import Measured
from granet.deploy.native_engine import Native
from granet.deploy.openvino_engine import OpenVINO
from granet.deploy.plan import Plan
from granet.deploy.unsupported import Unsupported
from granet.native import NativeMissing

ENGINES: dict[str, Callable[[Plan, int], Engine]] = {
    "native": Native,
    "openvino": OpenVINO,
    "torch": lambda plan, threads: Interpreter(plan),
}
"""From the one that is taken where nothing was measured to the one that can run everything."""
HALVES: dict[str, Callable[[Plan, int], Engine]] = {
    "native float16": partial(Native, bits=16),
    "openvino float16": partial(OpenVINO, bits=16),
}
"""In 16 bits, where the processor computes so: the first word is which engine of those above it is."""
DTYPES = (torch.float32, torch.float16)
TOLERANCE = 1e-4
"""How far an output may be from PyTorch's, as a share of the largest element."""
_SECONDS = 0.3
"""For each engine."""


def check_threads(threads: int | None) -> int:
    most = processors()
    if threads is None:
        return most
    if type(threads) is not int or not 1 <= threads <= most:
        raise ValueError(f"threads={threads!r}: must be from 1 to {most}, the processors of this machine")
    return threads


def processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_engine(engine: str | None) -> None:
    if engine is not None and engine not in ENGINES:
        raise ValueError(f"engine={engine!r}: must be one of {', '.join(ENGINES)}")


def check_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: must be one of {', '.join(map(str, DTYPES))}")


def engine_for(
    plan: Plan,
    threads: int,
    engine: str | None,
    *,
    measure: bool,
    dtype: torch.dtype = torch.float32,
    examples: Sequence[Inputs] = (),
) -> tuple[str, Engine]:
    """The engine of that name, or the one that is known to be the fastest, or else is measured to be.

    Where nothing is known and nothing may be measured, it is the first that can run the plan. Those that compute in 16
    bits are asked if `dtype` is `torch.float16`, and checked on the examples and on random inputs.
    """
    makers = ENGINES if dtype is torch.float32 else HALVES | ENGINES
    if engine is not None:
        makers = {name: make for name, make in makers.items() if name.split()[0] == engine}
    refusal = None
    with Measured() as measured:
        known = measured.engine(plan, threads, dtype)
        if engine is None and known in makers:
            makers = {known: makers[known]} | makers
        built = {}
        for name, make in makers.items():
            within = torch.float16 if name in HALVES else torch.float32
            try:
                built[name] = _made(make, plan, threads, within, measured, measure)
                if name in HALVES:
                    _check_halves(name, built, plan, examples)
            except Unsupported as error:
                refusal = error
            if name in built and (name == known or engine is not None or not measure):
                return name, built[name]
        if refusal is not None and not built:
            raise ValueError(f"engine={engine!r}: {refusal}") from refusal
        found = fastest(built, plan, threads)
        measured.keep_engine(plan, threads, dtype, found)
        return found, built[found]


def _made(
    make: Callable[[Plan, int], Engine],
    plan: Plan,
    threads: int,
    dtype: torch.dtype,
    measured: Measured,
    measure: bool,
) -> Engine:
    """granet's kernels run on fewer threads than asked for, where these are known to be faster."""
    known = measured.threads_for(plan, threads, dtype)
    try:
        engine = make(plan, known or threads)
    except NativeMissing as error:
        _tell(str(error))
        raise Unsupported(str(error)) from error
    if not isinstance(engine, Native):
        return engine
    engine.tune(measured.layers, measure)
    if not measure or known is not None or engine.batch >= threads:  # each has images of its own, nearly always
        return engine
    engine, count = _on_fewer(engine, make, plan, threads, measured)
    measured.keep_threads(plan, threads, dtype, count)
    return engine


def _on_fewer(
    engine: Native, make: Callable[[Plan, int], Engine], plan: Plan, threads: int, measured: Measured
) -> tuple[Native, int]:
    """The engine, or the same on half as many threads, and so on, while these take clearly less time.

    They may: threads that share an image wait for what others make of it.
    """
    while threads > 1:
        try:
            fewer = make(plan, threads // 2)
        except Unsupported:  # it would compute more images at once, for which there may be no room
            break
        assert isinstance(fewer, Native)
        fewer.tune(measured.layers, True)
        least = _least_times({"these": engine, "fewer": fewer}, random_inputs(plan))
        if least["fewer"] > 0.95 * least["these"]:
            break
        engine, threads = fewer, threads // 2
    return engine, threads


def _check_halves(name: str, built: dict[str, Engine], plan: Plan, examples: Sequence[Inputs]) -> None:
    try:
        check_halves(built[name], plan, [*examples, random_inputs(plan)])
    except Unsupported as error:
        del built[name]
        warnings.warn(f"granet: the engine {name} is not used: {error}", stacklevel=2)
        raise


@cache
def _tell(why: str) -> None:
    """Once."""
    warnings.warn(f"granet: networks run without its own kernels, in which zeros cost nothing: {why}", stacklevel=2)


def fastest(engines: Mapping[str, Engine], plan: Plan, threads: int) -> str:
    """The engine that takes the least time, of those whose outputs are PyTorch's.

    They are run in turn, so that all see the same minutes, and the least time of each counts: what else the machine
    does only ever adds to it.
    """
    inputs = random_inputs(plan)
    expected = Interpreter(plan)(*inputs)
    right = {
        name: engine
        for name, engine in engines.items()
        if name in HALVES or _agree(name, engine(*inputs), expected)  # halves were checked, by a rule of their own
    }
    if len(right) == 1:
        return next(iter(right))
    with _torch_threads(threads):
        least = _least_times(right, inputs)
    return min(least, key=least.__getitem__)


def _least_times(engines: Mapping[str, Engine], inputs: Inputs) -> dict[str, float]:
    least = dict.fromkeys(engines, float("inf"))
    spent = dict.fromkeys(engines, 0.0)
    while min(spent.values()) < _SECONDS:
        for name, engine in engines.items():
            begun = time.perf_counter()
            engine(*inputs)
            took = time.perf_counter() - begun
            least[name], spent[name] = min(least[name], took), spent[name] + took
    return least


def _agree(name: str, found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> bool:
    for one, other in zip(found, expected, strict=True):
        if not float((one - other).abs().max()) <= TOLERANCE * float(other.abs().max()):
            warnings.warn(f"granet: the engine {name} is not used: its outputs are not PyTorch's", stacklevel=2)
            return False
    return True


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)

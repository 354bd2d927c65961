"""A comparison from beginning to end: networks are written for each candidate, loaded in processes, and take turns."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from granet.deploy.bench.candidates import CANDIDATES, Inputs
from granet.deploy.bench.comparison import Comparison, Result
from granet.deploy.bench.process import CandidateProcess, Outputs
from granet.deploy.bench.turns import Turn, take_turns
from granet.deploy.unsupported import Unsupported
from granet.error_line import error_line, first_line


class Entrant(NamedTuple):
    """A candidate with a network."""

    label: str
    candidate: str
    """A name in `CANDIDATES`."""
    model: nn.Module
    """In evaluation mode."""


def entrants(model: nn.Module) -> list[Entrant]:
    """Every candidate with the same network."""
    return [Entrant(name, name, model) for name in CANDIDATES]


def compare(field: Sequence[Entrant], inputs: Inputs, threads: int, seconds: float) -> Comparison:
    """All that can be had here take turns on these inputs, each for so many seconds altogether."""
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="granet-bench-") as folder, ExitStack() as stack:
        given = Path(folder) / "inputs.pt"
        torch.save(list(inputs), given)
        expected = {id(one.model): _outputs(one.model, inputs) for one in field}
        written = _written(field, inputs, threads, Path(folder), left_out)
        processes = {
            one.label: stack.enter_context(CandidateProcess(one.candidate, written[one.label], given, threads))
            for one in field
            if one.label in written
        }
        found: dict[str, Outputs] = {}
        for label, process in processes.items():
            with _leaving_out(label, left_out):
                found[label] = process.start()
        times = take_turns({label: _turn(label, processes[label], left_out) for label in found}, seconds)
        results = [
            Result(
                one.label,
                found[one.label].precision,
                CANDIDATES[one.candidate].dense,
                times[one.label],
                *distances(found[one.label].arrays, expected[id(one.model)]),
                sum(path.stat().st_size for path in written[one.label].iterdir()),
                processes[one.label].memory(),
            )
            for one in field
            if one.label in times
        ]
    return Comparison(int(inputs[0].shape[0]), threads, results, left_out)


def _written(
    field: Sequence[Entrant], inputs: Inputs, threads: int, folder: Path, left_out: dict[str, str]
) -> dict[str, Path]:
    """By label, the folder that has what the candidate needs; candidates that need the same share it."""
    written: dict[str, Path] = {}
    known: dict[tuple[object, int], Path] = {}
    for one in field:
        candidate = CANDIDATES[one.candidate]
        with _leaving_out(one.label, left_out), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of exporters about themselves
            if missing := [name for name in candidate.needs if find_spec(name) is None]:
                raise Unsupported(f"{' and '.join(missing)} not installed: pip install 'granet[deploy]'")
            what = candidate.write, id(one.model)
            if what not in known:
                place = Path(tempfile.mkdtemp(dir=folder))
                candidate.write(one.model, inputs, threads, place)
                known[what] = place
            written[one.label] = known[what]
    return written


def _turn(label: str, process: CandidateProcess, left_out: dict[str, str]) -> Turn:
    def turn(seconds: float) -> list[float]:
        took: list[float] = []
        with _leaving_out(label, left_out):
            took = process.turn(seconds)
        return took

    return turn


@contextmanager
def _leaving_out(label: str, left_out: dict[str, str]) -> Iterator[None]:
    """Whatever an engine cannot do, the others go on without it."""
    try:
        yield
    except (Unsupported, ValueError) as error:
        left_out[label] = first_line(error)
    except Exception as error:
        left_out[label] = error_line(error)


def _outputs(model: nn.Module, inputs: Inputs) -> list[NDArray[Any]]:
    with torch.no_grad():
        given = model(*inputs)
    return [tensor.numpy() for tensor in ([given] if isinstance(given, Tensor) else given)]


def distances(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """The farthest element as a share of the largest expected one, and root mean squares alike; the worst output's.

    >>> distances([np.array([3.0, 4.5])], [np.array([3.0, 4.0])])
    (0.125, 0.1)
    """
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(found, expected, strict=True)]
    far = [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs]
    rms = [float(np.sqrt(np.square(a - b).mean() / np.square(b).mean())) for a, b in pairs]
    return max(far), max(rms)

"""What a comparison found: the time of each candidate, and how many times as fast one is as the best dense one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from granet.deploy.bench.turns import Times


@dataclass(frozen=True)
class Result:
    """Of one candidate with one network."""

    label: str
    precision: str
    dense: bool
    times: Times
    difference: float
    """From PyTorch, of the element that is the farthest, as a share of the largest one."""
    rms: float
    """Of all elements, over that of PyTorch's outputs."""
    file: int
    """Bytes of the network on disk."""
    memory: int | None
    """Bytes in memory while it runs, over those before it was loaded; None where the system does not say."""


@dataclass(frozen=True)
class Comparison:
    """All of them, in turns, on the same inputs."""

    batch: int
    threads: int
    results: Sequence[Result]
    left_out: dict[str, str] = field(default_factory=dict)
    """By label, why."""

    def best_dense(self, precision: str | None = None) -> Result | None:
        """The dense engine with the least median, of those with that precision."""
        dense = [each for each in self.results if each.dense and precision in (None, each.precision)]
        return min(dense, key=lambda each: each.times.median, default=None)

    def ratio(self, result: Result, precision: str | None = None) -> float | None:
        """How many times as fast it is as the best dense engine; None if there is none."""
        best = self.best_dense(precision)
        return None if best is None else best.times.median / result.times.median

    def rate(self, result: Result) -> float:
        """Inputs of the batch in a second."""
        return self.batch / result.times.median

    def record(self) -> dict[str, Any]:
        """For JSON."""
        rows = [
            asdict(each)
            | {
                "times": {name: round(value, 7) for name, value in asdict(each.times).items()},
                "per_second": self.rate(each),
                "over_best_float32": self.ratio(each, "float32"),
                "over_best": self.ratio(each),
            }
            for each in self.results
        ]
        best32, best = self.best_dense("float32"), self.best_dense()
        return {
            "batch": self.batch,
            "threads": self.threads,
            "best_dense_float32": best32 and best32.label,
            "best_dense": best and best.label,
            "results": rows,
            "left_out": self.left_out,
        }

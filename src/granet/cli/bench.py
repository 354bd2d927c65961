"""`granet bench`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from granet.cli.options import check_file, write_file

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from torch import Tensor, nn

    from granet.deploy.bench import Comparison

_NETWORK = (
    "The folder of a run, the name of a published network (`granet pretrained` lists them), or a `.granet` file, whose "
    "operators PyTorch and the other engines then run."
)


@dataclass(frozen=True)
class Bench:
    """Measure how fast a network is on this machine: granet's runtime beside the dense engines that are installed.

    These are PyTorch, eager and compiled, ONNX Runtime, and OpenVINO in float32 and in the precision that it chooses
    itself. Each runs in a process of its own, and all take turns. Leave the machine alone meanwhile.
    """

    network: Annotated[str, Positional, arg(metavar="RUN|NAME|FILE", help=_NETWORK)]
    batch: tuple[int, ...] = ()
    """Images at once, one table for each number; by default 1 and 16. A file has a batch of its own."""
    threads: tuple[int, ...] = ()
    """Threads, one table for each number; by default one, and as many as there are processors."""
    seconds: float = 2.0
    """How long each engine runs for a table."""
    json: Path | None = None
    """Write everything that was measured to this file, as JSON."""

    def run(self, console: Console) -> None:
        """Measure and show one table after another; then write."""
        from granet.checks import check_number
        from granet.deploy.bench import compare, entrants, machine
        from granet.deploy.engines import check_threads, processors

        check_number("seconds", self.seconds, above=0)
        check_file("json", self.json)
        threads = [check_threads(each) for each in self.threads] or sorted({1, processors()})
        networks = self._networks()
        here = machine()
        console.print(", ".join(f"{name} {value}" for name, value in here.items()), soft_wrap=True)
        records = []
        for title, model, inputs in networks:
            for count in threads:
                found = compare(entrants(model), inputs, count, self.seconds)
                records.append(found.record())
                console.print(_table(title, found))
                for line in _said(found):
                    console.print(line, soft_wrap=True)
        if self.json is not None:
            record = {"network": self.network, "machine": here, "comparisons": records}
            write_file("json", self.json, json.dumps(record, indent=2) + "\n")

    def _networks(self) -> list[tuple[str, nn.Module, tuple[Tensor, ...]]]:
        """One for each batch."""
        if self.network.endswith(".granet"):
            return [_from_file(self.network, self.batch)]
        from granet.cli.networks import network

        found = [network(self.network, batch) for batch in self.batch or (1, 16)]
        return [(one.title, one.model, (one.example,)) for one in found]


def _from_file(path: str, batch: tuple[int, ...]) -> tuple[str, nn.Module, tuple[Tensor, ...]]:
    import torch

    from granet.deploy.plan_file import load_plan
    from granet.deploy.plan_module import PlanModule

    plan = load_plan(path)
    sizes = sorted({shape[0] for shape in plan.inputs})
    if batch and list(batch) != sizes:
        raise ValueError(f"batch={batch!r}: must be left out, {path} is for {', '.join(map(str, sizes))}")
    generator = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(shape, generator=generator) for shape in plan.inputs)
    return Path(path).name, PlanModule(plan).eval(), inputs


def _table(title: str, found: Comparison) -> Table:
    from rich.table import Table

    threads = "one thread" if found.threads == 1 else f"{found.threads} threads"
    table = Table(title=f"{title}, batch {found.batch}, {threads}")
    table.add_column("", overflow="fold")
    for heading in ("ms", "least", "per s", "ratio", "differs", "file", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in found.results:
        times, ratio = result.times, found.ratio(result, "float32")
        table.add_row(
            result.label,
            *(f"{1e3 * each:.4g}" for each in (times.median, times.least)),
            f"{found.rate(result):.4g}",
            "-" if ratio is None else f"{ratio:.2f}",
            f"{result.difference:.0e}",
            f"{result.file / 1e6:.2f}",
            "-" if result.memory is None else f"{result.memory / 1e6:.0f}",
        )
    table.caption = (
        "medians, and how many times as fast as the best dense engine in float32; outputs differ from PyTorch's by "
        "that share of the largest; file and memory in MB"
    )
    return table


def _said(found: Comparison) -> list[str]:
    """Which dense engine is the best, how much faster granet is, and what could not be compared."""
    from granet.deploy.bench import GRANET

    granet = next((each for each in found.results if each.label == GRANET), None)
    best = {"in float32": found.best_dense("float32"), "in any precision": found.best_dense()}
    if best["in float32"] == best["in any precision"]:
        best = {"in float32 and in any precision": best["in any precision"]}
    lines = []
    for words, dense in best.items():
        if dense is not None:
            lines.append(f"best dense engine {words}: {dense.label}, {1e3 * dense.times.median:.4g} ms")
        if dense is not None and granet is not None:
            ratio = dense.times.median / granet.times.median
            lines[-1] += f"; granet is {ratio:.2f} times as fast" + (": zeros do not pay here" if ratio <= 1 else "")
    return [*lines, *(f"without {label}: {why}" for label, why in found.left_out.items())]

"""The `granet` command. `main` turns arguments into one of the command classes and calls its `run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from granet.cli.command_line import Command, CommandLine

_CHECKPOINTED = frozenset({"train", "sweep", "plasticity"})


def _parse(name: str, arguments: Sequence[str]) -> Command:
    from granet.cli.arguments import parse_one_of
    from granet.cli.bench import Bench
    from granet.cli.data import Data
    from granet.cli.export import Export
    from granet.cli.flops import Flops
    from granet.cli.methods import Methods
    from granet.cli.plasticity import Plasticity
    from granet.cli.pretrained import PretrainedNetworks
    from granet.cli.report import Report
    from granet.cli.sweep import Sweep
    from granet.cli.train import Train

    commands: dict[str, Callable[..., Command]] = {
        "train": Train,
        "sweep": Sweep,
        "plasticity": Plasticity,
        "report": Report,
        "methods": Methods,
        "pretrained": PretrainedNetworks,
        "flops": Flops,
        "bench": Bench,
        "export": Export,
        "data": Data,
    }
    told = "Sparse training for PyTorch. `granet --version` prints the version."
    return parse_one_of(name, told, commands, arguments)


def _is_checkpointed(arguments: Sequence[str]) -> bool:
    return not _CHECKPOINTED.isdisjoint(arguments[:1])


main = CommandLine("granet", _parse, _is_checkpointed)

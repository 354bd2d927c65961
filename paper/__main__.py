"""`python -m paper TABLE`, in the root of a checkout."""

from __future__ import annotations

from collections.abc import Sequence

from granet.cli.command_line import Command, CommandLine


def _parse(name: str, arguments: Sequence[str]) -> Command:
    from granet.cli.arguments import parse
    from paper.reproduce import Reproduce

    return parse(name, Reproduce, arguments)


main = CommandLine("python -m paper", _parse, lambda _: True)

if __name__ == "__main__":
    main()

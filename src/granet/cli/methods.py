"""`granet methods`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

import granet
from granet.cli.console import methods_table


@dataclass(frozen=True)
class Methods:
    """List the sparse training methods and what each can do and needs."""

    def run(self, console: Console) -> None:
        """Print the flags as a table, then one line about each."""
        methods = granet.list_methods()
        console.print(methods_table(methods))
        for info in methods:
            line = f"[bold]{info.name}[/bold]: {info.summary} ({info.paper})"
            console.print(line, highlight=False, soft_wrap=True)

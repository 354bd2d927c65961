"""`granet data`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Data:
    """Look after the files of image sets: `granet data check FOLDER` verifies their checksums."""

    action: Annotated[Literal["check"], Positional]
    """`check`: compare every known file in the folder with what was published. Changes nothing."""
    folder: Annotated[Path, Positional]
    """Where the files are."""

    def run(self, console: Console) -> None:
        """One line for each file; exit code 1 if something is wrong with any."""
        from granet.data import check

        results = check(self.folder)
        if not results:
            raise ValueError(f"folder={str(self.folder)!r}: must hold a file with a known checksum, of CIFAR or MNIST")
        for result in results:
            console.print(f"{result.status:<12}{result.path}  {result.detail}".rstrip(), soft_wrap=True)
        if not all(result.passed for result in results):
            sys.exit(1)

"""`python -m paper.publish RUN`: a finished run becomes a network that comes with the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from tyro.conf import Positional

from granet.cli.command_line import Command, CommandLine
from granet.cli.device import choose_device
from granet.files import write_text
from granet.pretrained import FOLDER, read_index
from paper.pretrained import pretrained_page, publish

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Publish:
    """Pack the network of a finished run, measure the packed file on the test images, and enter it in the index.

    Then, or without a run, write the page about all of them again.
    """

    run_folder: Annotated[Path | None, Positional] = None
    """Of the run, such as `runs/cifar10-vgg19-granet-0.98-seed0-006f35c6`."""
    name: str | None = None
    """The name to enter it under; by default MODEL-DATA-METHOD-SPARSITY."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """How its weights are stored."""
    data_dir: Path | None = None
    """Where the image files are; by default in the folder that GRANET_DATA names, else in ~/.cache/granet."""
    device: str | None = None
    """Where to measure; by default a GPU if there is one."""
    folder: Path = FOLDER
    """Where the index is, and where to add packed files."""
    page: Path = Path("docs/pretrained.md")
    """The page."""

    def run(self, console: Console) -> None:
        """Enter what is to be entered, then write the page."""
        if self.name is not None and self.run_folder is None:
            raise ValueError(f"name={self.name!r}: must be given with a run, the one to enter under it")
        if not self.folder.is_dir():
            raise ValueError(f"folder={str(self.folder)!r}: must be a folder")
        if not self.page.parent.is_dir():
            raise ValueError(f"page={str(self.page)!r}: must be a file in a folder that exists")
        if self.run_folder is not None:
            rounded = None if self.dtype == "float32" else getattr(torch, self.dtype)
            device = choose_device(self.device, embedded=False)
            entry = publish(
                self.run_folder, self.folder, name=self.name, dtype=rounded, data_dir=self.data_dir, device=device
            )
            told = f"added {entry.name}: {entry.size:,} bytes, {entry.accuracy_last:.2f} % on the test images"
            console.print(told, soft_wrap=True)
        write_text(self.page, pretrained_page(read_index(self.folder)))
        console.print(f"wrote {self.page}", soft_wrap=True)


def _parse(name: str, arguments: Sequence[str]) -> Command:
    from granet.cli.arguments import parse

    return parse(name, Publish, arguments)


main = CommandLine("python -m paper.publish", _parse, lambda _: False)

if __name__ == "__main__":
    main()

"""`granet pretrained`: the trained networks as a list, and their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from granet.pretrained import Pretrained


@dataclass(frozen=True)
class PretrainedNetworks:
    """List the trained networks that `granet.load_pretrained(NAME)` loads, or fetch the file of one."""

    fetch: str | None = None
    """The name of a network whose file to have here, downloaded if need be; prints where it is."""
    url: str | None = None
    """The folder to download it from; by default the one that GRANET_PRETRAINED_URL names."""
    folder: Path | None = None
    """Where the index is; by default what comes with granet."""

    def run(self, console: Console) -> None:
        """Fetch one, or print the list."""
        if self.url is not None and self.fetch is None:
            raise ValueError(f"url={self.url!r}: must be given with fetch, the network to download")
        if self.folder is not None and not self.folder.is_dir():
            raise ValueError(f"folder={str(self.folder)!r}: must be a folder")
        from granet.pretrained import FOLDER, find_pretrained, read_index

        folder = self.folder or FOLDER
        if self.fetch is not None:
            _, path = find_pretrained(folder, self.fetch, self.url)
            console.print(str(path), soft_wrap=True, highlight=False, markup=False)
            return
        entries = read_index(folder)
        console.print(_table(entries) if entries else "none yet")


def _table(entries: tuple[Pretrained, ...]) -> Table:
    """What nothing differs in goes into the title, to fit 80 columns; where it does not, names go on in a next line."""
    from rich.table import Table

    from granet.cli.console import split_alike, titled

    told, words = split_alike([asdict(entry) for entry in entries], ("model", "data", "method"))
    table = Table(title=titled("Pretrained networks", told))
    table.add_column("name", overflow="fold")
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in ("sparsity", "accuracy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for entry in entries:
        figures = (f"{entry.sparsity:.2%}", f"{entry.accuracy_last:.2f} %")
        table.add_row(entry.name, *(getattr(entry, word) for word in words), *figures)
    return table

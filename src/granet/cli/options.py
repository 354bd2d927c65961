"""Options that several commands have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from granet.files import write_text, writing_to


@dataclass(frozen=True, kw_only=True)
class ManyRuns:
    """The options of commands whose runs are in a file."""

    packed: int | None = None
    """Runs at once. By default what the file says, else one process per CPU core, or five streams of a GPU."""
    data_dir: Path | None = None
    """Where the image files are; by default in the folder that GRANET_DATA names, else in ~/.cache/granet."""
    device: str | None = None
    """Where to train: `cpu`, `cuda`, `cuda:1` ... By default the CPU for the digits, else a GPU if there is one."""
    threads: int | None = None
    """CPU threads of all runs together."""
    checkpoint_every: float = 60.0
    """Seconds between checkpoints of a run."""
    dry_run: bool = False
    """Only list the runs and how far each is."""


def check_file(option: str, path: Path | None) -> None:
    """ValueError if it cannot be a file: to be known before what is to be written takes long."""
    if path is not None and path.is_dir():
        raise ValueError(f"{option}={str(path)!r}: must be a file that can be written (it is a folder)")


def write_file(option: str, path: Path, text: str) -> None:
    """The file that an option names."""
    check_file(option, path)
    with writing_to(option, path, "must be a file that can be written"):
        write_text(path, text)

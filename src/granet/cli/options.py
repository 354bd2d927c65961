"""Options that several commands have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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

"""Checkpoints of a run: the newest two, each with its checksum inside.

A file is a line that names the format, the SHA-256 of the rest, and the rest: what `torch.save` writes. It is read back
with `weights_only=True`, so that a file from a stranger cannot run code.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from pathlib import Path
from typing import Any

import torch

from granet.files import atomic

_FORMAT = b"granet checkpoint 1\n"
_DIGEST = hashlib.sha256().digest_size
KEPT = 2


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Write the state after `step`, whole or not at all, and remove all but the newest checkpoints."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    with atomic(folder / f"checkpoint-{step:08d}.pt") as temporary:
        temporary.write_bytes(_FORMAT + hashlib.sha256(content).digest() + content)
    for old in _checkpoints(folder)[KEPT:]:
        old.unlink(missing_ok=True)


def load_checkpoint(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest state that is undamaged, or None if there is none; a damaged one is named and passed over."""
    for path in _checkpoints(folder):
        content = path.read_bytes()
        begin = len(_FORMAT) + _DIGEST
        digest = hashlib.sha256(content[begin:]).digest()
        if content[:begin] == _FORMAT + digest:
            state: dict[str, Any] = torch.load(io.BytesIO(content[begin:]), map_location=device, weights_only=True)
            return state
        warnings.warn(f"granet: {path} is damaged, so the one before it is used", stacklevel=2)
    return None


def _checkpoints(folder: Path) -> list[Path]:
    """From the newest on."""
    return sorted(folder.glob("checkpoint-*.pt"), reverse=True)

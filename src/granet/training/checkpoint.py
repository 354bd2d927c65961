"""Checkpoints of a run: the newest two, and those that it is asked to keep, each with its checksum inside.

A file is a line that names the format, the SHA-256 of the rest, and the rest: what `torch.save` writes. It is read back
with `weights_only=True`, so that an untrusted file cannot run code.

A damaged checkpoint is passed over. One that cannot be read is an error instead: if its checksum is right, it may be of
a newer version, and training anew would remove it; if it is a folder, somebody may have unpacked it.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from granet.files import atomic
from granet.training.recipe import Recipe

_FORMAT = b"granet checkpoint 1\n"
_DIGEST = hashlib.sha256().digest_size
_TRAIN_AGAIN = "remove its folder to train that run again"
KEPT = 2


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Write the state after `step`, whole or not at all, and remove all but the newest checkpoints.

    Those of later steps are removed too: they must be damaged, or training would have continued from them.
    """
    path = folder / f"checkpoint-{step:08d}.pt"
    _write(path, state)
    every = _checkpoints(folder)
    newest = [one for one in every if one <= path][:KEPT]
    _remove(one for one in every if one not in newest)


def load_checkpoint(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest state that is undamaged, or None if there is none; a damaged one is named and passed over."""
    paths = _checkpoints(folder)
    for path in paths:
        if (state := _read(path, device, "remove it to go on without it")) is not None:
            return state
        instead = "training starts anew" if path == paths[-1] else "the one before it is used"
        warnings.warn(f"granet: {path} is damaged, so {instead}", stacklevel=2)
    return None


def remove_checkpoints(folder: Path) -> None:
    """For a run that is done: others start from its weights, or from what it kept."""
    with suppress(OSError):  # in a folder that is read-only by now they stay, which does no harm
        _remove(_checkpoints(folder))


def keep_state(folder: Path, epoch: int, state: dict[str, Any]) -> None:
    """Write the state after `epoch` for other runs to branch from; it stays."""
    _write(kept_path(folder, epoch), {**state, "kept": [folder.name, epoch]})


def load_kept(folder: Path, epoch: int, device: torch.device) -> dict[str, Any]:
    """The state that the run in `folder` kept after `epoch`; ValueError that names the file if there is none."""
    path = kept_path(folder, epoch)
    if not path.is_file():
        raise ValueError(
            f"branch_epoch={epoch!r}: {path} is not there; that run must keep this epoch and have trained so far (if "
            "it did, remove its folder to train it again)"
        )
    state = _read(path, device, _TRAIN_AGAIN)
    if state is None:
        raise ValueError(f"branch_epoch={epoch!r}: {path} is damaged; {_TRAIN_AGAIN}")
    if state.pop("kept", None) != [folder.name, epoch]:
        raise ValueError(f"branch_epoch={epoch!r}: {path} is of another run or epoch; {_TRAIN_AGAIN}")
    return state


def kept_path(folder: Path, epoch: int) -> Path:
    """Where the state after `epoch` is kept."""
    return folder / f"kept-{epoch:04d}.pt"


@contextmanager
def fitting(recipe: Recipe) -> Iterator[None]:
    """Around code that takes a state: one that lacks something, or holds something else, becomes a ValueError."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else (str(error).splitlines() or [""])[-1].strip()
        raise ValueError(
            f"model={recipe.model!r}, method={recipe.method!r}: the checkpoint is of another model, method or version "
            f"of granet ({reason}); after a change of their code choose another folder with out"
        ) from error


def _write(path: Path, state: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    with atomic(path) as temporary:
        temporary.write_bytes(_FORMAT + hashlib.sha256(content).digest() + content)


def _read(path: Path, device: torch.device, remedy: str) -> dict[str, Any] | None:
    """The state in a file, or None if it is damaged; ValueError that names the remedy if it is something else."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: must be a file that can be read ({error.strerror}); {remedy}") from error
    begin = len(_FORMAT) + _DIGEST
    if content[:begin] != _FORMAT + hashlib.sha256(content[begin:]).digest():
        return None
    reason: Exception | None = None
    state: object = None
    try:
        state = torch.load(io.BytesIO(content[begin:]), map_location=device, weights_only=True)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a pickle can make torch raise anything; what it advises is to trust the file
        reason = error
    if not isinstance(state, dict):
        what = "holds no state of a run that can be read, so it is of another version of granet or a stranger's"
        raise ValueError(f"{path}: {what}; {remedy}") from reason
    return state


def _remove(checkpoints: Iterable[Path]) -> None:
    """A folder of such a name stays: somebody else made it."""
    for path in checkpoints:
        if not path.is_dir():
            path.unlink(missing_ok=True)


def _checkpoints(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted(folder.glob("checkpoint-*.pt"), reverse=True)

"""The folder of one run: what was asked, what happened, what came out.

    config.json         the recipe, and the versions and device it ran on
    metrics.jsonl       one line per epoch
    summary.json        the final figures
    model.safetensors   the weights of the last epoch, zeros included
    curves.png          accuracy and sparsity over time, if matplotlib is installed

Files appear whole or not at all: each is written beside its place and then renamed. `metrics.jsonl` grows by one
`write` of one line per epoch, so that it can be followed while training runs.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model
from torch import nn

from granet import __version__
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary


@dataclass(frozen=True)
class RunDir:
    """One run's folder; `RunDir.create` makes a new one."""

    path: Path

    @staticmethod
    def create(root: Path, recipe: Recipe, device: torch.device) -> RunDir:
        """A new folder under `root` with its `config.json`; its name tells the recipe, a number is added if taken."""
        sparsity = recipe.method_fields.get("sparsity")
        asked = () if sparsity is None else (f"{sparsity:g}",)
        name = "-".join([recipe.data, recipe.method, *asked, f"seed{recipe.seed}"])
        run = RunDir(_new_folder(root, name))
        run.write_json("config.json", {"recipe": recipe.to_dict(), "environment": _environment(device)})
        return run

    def append(self, record: EpochRecord) -> None:
        """Add one epoch to `metrics.jsonl`."""
        values = {name: _finite(value) for name, value in asdict(record).items()}
        line = json.dumps(values) + "\n"
        descriptor = os.open(self.path / "metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def finish(self, model: nn.Module, summary: Summary) -> None:
        """Write the weights and the final figures."""
        with atomic(self.path / "model.safetensors") as temporary:
            save_model(model, str(temporary))
            shutil.copymode(self.path / "config.json", temporary)  # safetensors leaves it to the owner alone
        self.write_json("summary.json", asdict(summary))

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Write `value` as an indented JSON file."""
        with atomic(self.path / name) as temporary:
            temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it becomes `path` at the end, or vanishes on an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _new_folder(root: Path, name: str) -> Path:
    """`root/name`, or the first of `root/name-2`, `root/name-3` ... that nobody has; made by us, so ours alone."""
    number = 1
    while True:
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            root.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except OSError as error:
            if not path.is_dir():
                allowed = "must be a folder that can be written to, or a path where one can be made"
                raise ValueError(f"out={str(root)!r}: {allowed} ({error.strerror})") from error
            number += 1
        else:
            return path


def _finite(value: Any) -> Any:
    """`value`, or None for the NaN and infinities of a run that diverged: JSON has no word for them."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _environment(device: torch.device) -> dict[str, Any]:
    return {
        "granet": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
    }

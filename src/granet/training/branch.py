"""Starting from another run: which one it is, what a branch takes over from it, and what must be the same in both.

A method such as `lth` starts from the weights of a finished parent. A branch goes on from the state that its parent,
the trunk, kept after an epoch: its weights, momentum, batches and records.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from granet.training.checkpoint import load_kept
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord
from granet.training.rundir import RunDir


def find_parent(recipe: Recipe, out: Path) -> Path:
    """The folder of the recipe's parent, given by its path or by its name under ``out``.

    It must be finished, unless this is a branch, which needs only the state that it starts from.
    """
    folder = next((path for path in (Path(recipe.parent), out / recipe.parent) if path.is_dir()), None)
    if folder is None or (RunDir(folder).summary is None and not recipe.branch_epoch):
        raise ValueError(f"parent={recipe.parent!r}: must be the folder of a finished run, or its name in {str(out)!r}")
    return folder


def load_branch(recipe: Recipe, parent: Path, device: torch.device) -> dict[str, Any]:
    """The state that a branch begins with.

    `no_decay` decides the order of the optimizer's parameters: if it differed, each would continue with the momentum of
    some other parameter.
    """
    state = load_kept(parent, recipe.branch_epoch, device)
    trunk = RunDir(parent).recipe
    if trunk.no_decay != recipe.no_decay:
        raise ValueError(
            f"no_decay={recipe.no_decay!r}: must be that of the run that it branches from, {trunk.no_decay!r}"
        )
    return state


def check_no_extras(recipe: Recipe, optimizer: torch.optim.Optimizer, branch: Mapping[str, Any]) -> None:
    """A branch takes over weights and their momentum; it cannot take over other trained parameters."""
    if len(branch["optimizer"]["param_groups"]) > len(optimizer.param_groups):
        raise ValueError(
            f"parent={recipe.parent!r}: its method trains parameters of its own beside the weights, as str and vd do; "
            "a branch must start from a run of another method"
        )


def check_same_steps(recipe: Recipe, last: EpochRecord, steps_per_epoch: int) -> None:
    """Epochs of a branch go on where those of its trunk ended, also in the count of steps."""
    counted = recipe.branch_epoch * steps_per_epoch
    if last.step != counted:
        raise ValueError(
            f"batch_size={recipe.batch_size}: must give {last.step} steps in {recipe.branch_epoch} epochs, "
            f"as in the run that it branches from, not {counted}"
        )

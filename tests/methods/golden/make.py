"""Run the authors' program on the trainings of tests/shared/golden.py and write the masks that it makes.

    git clone https://github.com/VITA-Group/GraNet authors
    PYTHONPATH=tests/shared python tests/methods/golden/make.py authors

They must be the same by both programs of the repository, each at the last commit with the paper's end of pruning, and
in single and in double precision.
"""

import contextlib
import importlib
import io
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from golden import EVERY, FILES, PRUNE_END, SETTINGS, TAKEN, TOTAL, first_masks, network, optimizer, packed, updates

PROGRAMS = {"CIFAR": ("667e132", "CIFAR/sparselearning/core.py"), "ImageNet": ("236f1ab", "ImageNet/core.py")}
"""The commit, and where the program has its ``Masking``."""


def masks(core: Any, program: str, setting: str, dtype: torch.dtype) -> dict[str, np.ndarray]:
    method, first, last = SETTINGS[setting]
    args = SimpleNamespace(
        method=method, sparse_init="ERK", fix=False, rm_first=False, multiplier=1, world_size=1, update_frequency=EVERY,
        init_density=1 - first, ini_density=1 - first, final_density=1 - last,
        init_prune_epoch=0, final_prune_epoch=PRUNE_END,
    )  # fmt: skip
    model = network().to(dtype)
    trained = optimizer(model)
    rate = core.CosineDecay(0.5, TOTAL)
    loader, by = [None], ("magnitude", "gradient")  # epochs of one step
    if program == "CIFAR":
        made = core.Masking(
            trained, 0.5, death_rate_decay=rate, death_mode=by[0], growth_mode=by[1], args=args, train_loader=loader
        )
    else:
        made = core.Masking(trained, loader, rate, 0.5, *by, "none", args=args)
    made.print_nonzero_counts = lambda: None  # it reads what that commit no longer writes
    made.add_module(model)
    model.load_state_dict(network().state_dict())  # instead of what its own, random masks have left
    for name, mask in first_masks(model, first).items():
        made.masks[name][:] = mask
    made.apply_mask()
    found = packed(list(updates(model, made.step, lambda: made.masks)))
    if first < last:  # no two weights are equal where it cuts, so it keeps as many as it means to
        left = [(1 - min(1, update * EVERY / PRUNE_END)) ** 3 for update in range(1, TAKEN // EVERY + 1)]
        meant = [int(sum(map(torch.numel, model.parameters())) * (1 - last + (last - first) * share)) for share in left]
        assert meant == sum(np.unpackbits(bits, axis=1).sum(1) for bits in found.values()).tolist(), setting
    return found


def main(checkout: str) -> None:
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign,assignment]
    found: dict[str, list[dict[str, np.ndarray]]] = {setting: [] for setting in SETTINGS}
    for program, (commit, path) in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(
                ["git", "-C", checkout, "archive", commit, program], check=True, capture_output=True
            )
            subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
            sys.path.insert(0, str((Path(folder) / path).parent))
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
                core = importlib.import_module("core")
                for setting, each in found.items():
                    each += [masks(core, program, setting, dtype) for dtype in (torch.float32, torch.float64)]
            sys.path.pop(0)
            for name in ("core", "funcs"):
                sys.modules.pop(name, None)
    for setting, (first, *others) in found.items():
        assert all(np.array_equal(first[name], other[name]) for other in others for name in first), setting
        save_file(first, FILES / f"{setting}.safetensors")


if __name__ == "__main__":
    main(sys.argv[1])

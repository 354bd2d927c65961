"""The folder of a finished run, without a training: for commands that take the network of one."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from deployed import as_trained
from granet.models import create_model
from granet.training import Recipe, RunDir, Summary

IMAGES = {"name": "digits", "shape": [1, 8, 8], "classes": 10}


def finished_run(root: Path, model: str = "digits_net") -> tuple[Path, nn.Module]:
    """In ``root``, and its network in eval mode: with zeros in most weights, and as a training leaves it otherwise."""
    recipe = Recipe(model=model)
    run = RunDir.find(root, recipe)
    run.make()
    run.describe(recipe, torch.device("cpu"), IMAGES)
    trained = as_trained(create_model(model, num_classes=10, in_channels=1))
    run.finish(trained, Summary(0.91, None, None, 0.9, 0.9, 100, 10, 0.2, 0.5))
    return run.path, trained.eval()

"""The trained network that a command is given: the folder of a run, or the name of a published one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from granet.checks import check_count
from granet.models import create_model
from granet.pretrained import list_pretrained, load_pretrained
from granet.probe.trained import take_over
from granet.training import RunDir


class Network(NamedTuple):
    """In eval mode on the CPU, with a batch that it takes: noise, as large as normalised images are."""

    model: nn.Module
    example: Tensor
    title: str
    """The name of the run, or of the network."""


def network(given: str, batch: int = 1) -> Network:
    """The network of a run folder or of that name; ValueError if it is neither, or of a run that is not finished."""
    check_count("batch", batch)
    folder = Path(given)
    if folder.is_dir():
        model, shape, title = *_trained(given, RunDir(folder)), folder.resolve().name
    elif "/" in given:
        raise ValueError(f"network={given!r}: must be the folder of a run, or a name that `granet pretrained` lists")
    else:
        model, title = load_pretrained(given), given
        (shape,) = ((one.channels, one.side, one.side) for one in list_pretrained() if one.name == given)
    example = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0))
    return Network(model.eval(), example, title)


def _trained(given: str, run: RunDir) -> tuple[nn.Module, tuple[int, int, int]]:
    """With the shape of one image."""
    if not (run.path / "config.json").is_file():
        raise ValueError(f"network={given!r}: must be the folder of a run, there is no config.json in it")
    recipe, (shape, classes) = run.recipe, run.images
    model = create_model(recipe.model, num_classes=classes, in_channels=shape[0], width=recipe.width)
    take_over(model, run.trained_state(model, field="network"))
    return model, shape

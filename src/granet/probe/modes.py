"""Ways to run a model: in training or evaluation mode, and uncompiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The whole model in training or evaluation mode; afterwards each of its modules is in its own mode again."""
    modes = {module: module.training for module in model.modules()}
    try:
        if training:
            model.train()  # may be overridden to leave frozen parts as they are
        else:
            for module in modes:
                module.training = False  # eval() may be overridden to do more, such as merging weights
        yield
    finally:
        for module, was_training in modes.items():
            module.training = was_training


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled models and parts of models run as they were written, so that everything in them can be seen.

    This loads the compiler, which takes a second: one that is loaded inside, because a model compiles itself when it
    first runs, would compile what is to see it as well.
    """
    with torch.compiler.set_stance("force_eager"):
        yield

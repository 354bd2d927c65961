"""Ways to run a model: in training or evaluation mode, uncompiled, and with other parameters."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


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


def run_with(
    module: nn.Module, parameters: Mapping[str, Tensor | None], given: tuple[Any, ...], named: Mapping[str, Any]
) -> Tensor:
    """A layer's forward pass, whatever its strides and padding, with some other parameters; no hook is called."""
    twin = copy.copy(module)
    twin.__dict__["_parameters"] = {**module._parameters, **parameters}
    output: Tensor = twin.forward(*given, **named)
    return output

"""The state of a finished first run: whether it fits a model, and how a model takes it over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from granet.names import plain_name


def checked_state(method: str, model: nn.Module, trained: Mapping[str, Any] | None) -> dict[str, Tensor]:
    """The tensors of ``trained`` by plain name; ValueError unless they are the model's, one for one."""
    if trained is None:
        raise ValueError(
            f"trained=None: {method} needs the state_dict of a finished first run, since the model has the values to "
            "begin with; pass trained=state"
        )
    if not isinstance(trained, Mapping):
        raise ValueError(f"trained={type(trained).__name__}: {method} needs the state_dict of a finished first run")
    state = {plain_name(name): value for name, value in trained.items()}
    wanted = {plain_name(name): value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    for name, value in wanted.items():
        there = state.get(name)
        if not isinstance(there, Tensor):
            begin = f"which begins with {next(iter(trained))!r}" if trained else "which is empty"
            raise ValueError(
                f"trained: {method} finds no {name!r} in it, {begin}; must be the state_dict of the model itself"
            )
        if there.shape != value.shape:
            raise ValueError(
                f"trained: {method} finds {name!r} of shape {tuple(there.shape)}; must be {tuple(value.shape)}, as here"
            )
    for name in state:
        if name not in wanted and isinstance(state[name], Tensor):
            raise ValueError(f"trained: {method} finds {name!r} in it; must be the state_dict of this model")
    return {name: state[name].detach() for name in wanted}


@torch.no_grad()
def take_over(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give every parameter and buffer the value it has in ``state``, in place; a tied one that of its first name."""
    saved = model.state_dict()
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        if name in saved:
            value.detach().copy_(state[plain_name(name)])

"""A model's state as files see it: every parameter and buffer by its plain name, and which of them are one tensor."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from granet.checkpoint.safetensors_file import DTYPE_NAMES
from granet.names import plain_name


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """All tensors of `model.state_dict()`, detached but not copied; names are those inside `torch.compile`.

    ValueError for what a file cannot hold: state that is not a tensor, and tensors without ordinary data.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model={type(model).__name__}: must be a torch.nn.Module")
    state: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        name = plain_name(key)
        if name in state:
            raise ValueError(f"model: two tensors are called {name!r}; each must have its own name")
        state[name] = _ordinary(name, value)
    return state


def first_names(state: dict[str, Tensor]) -> dict[str, str]:
    """For every name, the first name of the same tensor: tied weights are several names of one."""
    firsts: dict[tuple[object, ...], str] = {}
    names = {}
    for name, tensor in state.items():
        lazy = tensor.is_conj(), tensor.is_neg()  # of the same memory, and yet other values
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), lazy)
        names[name] = firsts.setdefault(place, name) if tensor.numel() else name
    return names


def _ordinary(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"model: {name!r} is a {type(value).__name__}; only tensors can be in a packed file")
    if is_lazy(value):
        raise ValueError(f"model: {name!r} has no shape yet; run one forward pass first")
    if type(value) is not Tensor or value.layout != torch.strided:
        kind = value.layout if type(value) is Tensor else type(value).__name__
        raise ValueError(f"model: {name!r} is a {kind} tensor; make it an ordinary one first")
    if value.is_meta:
        raise ValueError(f"model: {name!r} is on the meta device; it must have values")
    if value.dtype not in DTYPE_NAMES:
        raise ValueError(f"model: {name!r} is {value.dtype}; a packed file holds {', '.join(DTYPE_NAMES.values())}")
    return value

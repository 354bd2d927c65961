"""What a method keeps between updates besides the masks: named tensors of the net and of its layers.

DSR keeps its threshold in ``net.memory``, SNFS the momentum of each weight in ``layer.memory``. They are made when
training begins and change in place; methods themselves hold no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from granet.net import SparseNet
from granet.tensors.packing import pack_bits, unpack_bits
from granet.weights import SparseLayer

NET = ""
"""The key of the net's own memory beside those of the layers: no parameter has an empty name."""


Layout = dict[tuple[str, str], tuple[torch.Size, torch.dtype]]
"""Place and name of each tensor that is kept, with its shape and type."""


def memory_layout(net: SparseNet) -> Layout:
    """What a method keeps; ValueError for anything but tensors: it could not be saved."""
    layout: Layout = {}
    for where, value in _flat(_places(net)).items():
        if not isinstance(value, Tensor):
            told = " ".join(repr(value).split())[:80]  # an array would be told in many lines
            raise ValueError(f"{_entry(*where)}={told}: must be a tensor, so that it is saved and loaded")
        layout[where] = value.shape, value.dtype
    return layout


def check_layout(net: SparseNet, begun: Layout) -> None:
    """ValueError unless it is as when training began: a resumed training has only what is made then."""
    now = memory_layout(net)
    for where in begun | now:
        if now.get(where) != begun.get(where):
            raise ValueError(
                f"{_entry(*where)}: must be made in begin() and keep its shape and type, so that it can be loaded"
            )


def _entry(place: str, name: str) -> str:
    return f"{'net' if place == NET else f'{place}: layer'}.memory[{name!r}]"


def memory_state(net: SparseNet) -> dict[str, dict[str, Tensor]]:
    """Copies of all that is kept, by layer and name; bool tensors as packed bits."""
    return {
        place: {name: _packed(tensor) for name, tensor in memory.items()}
        for place, memory in _places(net).items()
        if memory
    }


def check_memory(net: SparseNet, state: Mapping[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """The tensors kept here, each with its value in ``state``; ValueError unless it holds exactly those."""
    kept = _flat(_places(net))
    whole = isinstance(state, Mapping) and all(isinstance(memory, Mapping) and memory for memory in state.values())
    if not whole or _flat(state).keys() != kept.keys():
        names = ", ".join(sorted({name for _, name in kept})) or "nothing"
        raise ValueError(f"state['memory']: must hold what the method keeps here, {names}")
    pairs = []
    for (place, name), tensor in kept.items():
        try:
            pairs.append((tensor, _unpacked(state[place][name], tensor)))
        except (ValueError, AttributeError) as error:
            raise ValueError(f"state['memory'][{place!r}][{name!r}]: must be of this model ({error})") from error
    return pairs


def make_memory(net: SparseNet, state: Mapping[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """As :func:`check_memory` where ``begin`` did not run: what is not kept here yet gets its room from the state.

    After a ValueError the net is of no use: some may have its room, and nothing its value.
    """
    places = _places(net)
    for place, memory in state.items() if isinstance(state, Mapping) else ():
        if place not in places or not isinstance(memory, Mapping):
            raise ValueError(f"state['memory'][{place!r}]: must be of this model")
        layer = next((layer for layer in net.layers if layer.name == place), None)
        for name, value in memory.items():
            if not isinstance(value, Tensor):
                raise ValueError(f"state['memory'][{place!r}][{name!r}]={type(value).__name__}: must be a tensor")
            if name not in places[place]:
                places[place][name] = _room_for(value, net, layer)
    return check_memory(net, state)


def _room_for(value: Tensor, net: SparseNet, layer: SparseLayer | None) -> Tensor:
    if layer is None:
        return value.new_empty(value.shape, device=net.device)
    if value.dtype == torch.uint8 and value.shape == (-(-layer.weight.numel() // 8),):  # packed bits, one a weight
        return torch.empty_like(layer.mask)
    if value.shape == layer.weight.shape:
        return torch.empty_like(layer.weight, dtype=value.dtype, requires_grad=False)
    return value.new_empty(value.shape, device=layer.weight.device)


def _places(net: SparseNet) -> dict[str, dict[str, Tensor]]:
    return {NET: net.memory} | {layer.name: layer.memory for layer in net.layers}


def _flat(memories: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], Any]:
    return {(place, name): value for place, memory in memories.items() for name, value in memory.items()}


def _packed(tensor: Tensor) -> Tensor:
    return pack_bits(tensor) if tensor.dtype == torch.bool else tensor.detach().to("cpu", copy=True)


def _unpacked(value: Tensor, like: Tensor) -> Tensor:
    if like.dtype == torch.bool:
        return unpack_bits(value, like.shape)
    if value.shape != like.shape or value.dtype != like.dtype:
        raise ValueError(f"{tuple(value.shape)} {value.dtype} for {tuple(like.shape)} {like.dtype}")
    return value

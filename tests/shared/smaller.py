"""Networks with dead filters, and whether what compaction makes of them gives the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import granet
from granet.model_inputs import arguments


class Model(nn.Module):
    """Layers and a forward, written in one place."""

    def __init__(self, forward: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs: Any) -> Any:
        return self._forward(self, *inputs)


def shaken(model: Any, seed: int = 0) -> Any:
    """With every value drawn, biases, norms and statistics too: nothing is zero or one by chance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                drawn = torch.randn(tensor.shape, generator=generator) / max(1, tensor[:1].numel()) ** 0.5
                tensor.copy_(drawn.abs() + 0.5 if "var" in name or (tensor.ndim == 1 and "weight" in name) else drawn)
    return model


@torch.no_grad()
def kill(model: nn.Module, filters: dict[str, Iterable[int]], dim: int = 0) -> None:
    """Set filters of weights to zero."""
    for name, dead in filters.items():
        model.get_parameter(name).index_fill_(dim, torch.tensor(list(dead), dtype=torch.long), 0)


@torch.no_grad()
def run(model: nn.Module, inputs: Any) -> list[Tensor]:
    """In eval mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    positional, named = arguments(inputs)
    outputs = model(*positional, **named)
    for module, mode in modes:
        module.training = mode
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


def compacted(model: nn.Module, inputs: Any, *more: Any, tolerance: float = 1e-5) -> nn.Module:
    """The smaller model, which gives the same on these inputs, and more, and leaves the model as it was."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = granet.compact(model, inputs, tell=None)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert type(small) is type(model)
    assert set(before) <= set(small.state_dict())
    assert [module.training for module in small.modules()] == [module.training for module in model.modules()]
    for each in (inputs, *more):
        for one, other in zip(run(small, each), run(model, each), strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            scale = max(float(other.abs().max()), 1e-30)
            assert float((one - other).abs().max()) <= tolerance * scale
    return small


def shapes(model: nn.Module, *names: str) -> list[tuple[int, ...]]:
    return [tuple(model.get_parameter(name).shape) for name in names]

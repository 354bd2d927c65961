"""What dropped filters leave silent: as it is known from the graph, and as it is seen while a network runs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

import granet
from granet.channels import trace_channels
from nets import CHANNELS as MODELS
from nets import Residual


def make(name: str, seed: int = 0) -> nn.Module:
    """A model whose norms have shifts and statistics."""
    torch.manual_seed(seed)
    model = MODELS[name][0]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        model(images(32))
    return model


def images(count: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def loss(model: nn.Module, x: Tensor) -> Tensor:
    logits = model(x)
    logits = logits.flatten(2).mean(2) if logits.ndim > 2 else logits
    return F.cross_entropy(logits, x[:, :, 0, 0].argmax(1))


def static(model: nn.Module, name: str, **options: Any) -> granet.Sparsifier:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    method = granet.Static(sparsity=0.5, pattern="filter")
    return granet.sparsify(model, optimizer, method, exclude=(MODELS[name][1],), **options)


@torch.no_grad()
def look(model: nn.Module, x: Tensor, dropped: dict[str, set[int]]) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
    """Layer to its silent inputs: as they are known from the graph, and as they are seen while it runs."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
            if not name.endswith("running_var"):
                tensor *= torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    masks = {}
    for name, filters in dropped.items():
        module = model.get_submodule(name)
        rows = torch.tensor(sorted(filters), dtype=torch.long)
        for vector in (module.bias, getattr(module, "running_mean", None)):
            if vector is not None:
                vector[rows] = 0
        weight = module.weight
        if weight.ndim > 1:
            (weight.transpose(0, 1) if getattr(module, "transposed", False) else weight)[rows] = 0
        channels = weight.shape[1] if getattr(module, "transposed", False) else len(weight)
        masks[name] = torch.tensor([channel in filters for channel in range(channels)])

    flow = trace_channels(fx.Tracer().trace(model), dict(model.named_modules()))
    known = flow.silent_inputs(masks, torch.device("cpu"))
    seen: dict[str, Tensor] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor], _: Tensor) -> None:
            axis = -1 if isinstance(module, nn.Linear) else 1
            zero = (inputs[0] == 0).transpose(0, axis).flatten(1).all(1)
            seen[name] = seen.get(name, torch.tensor(True)) & zero

        return hook

    layers = {name: module for name, module in model.named_modules() if hasattr(module, "kernel_size")}
    layers |= {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    hooks = [module.register_forward_hook(note(name)) for name, module in layers.items() if hasattr(module, "weight")]
    for training in (False, True):
        model.train(training)
        model(x.clone())
    for handle in hooks:
        handle.remove()
    return {name: places(vector) for name, vector in known.items()}, {n: places(v) for n, v in seen.items()}


def places(vector: Tensor) -> set[int]:
    return set(vector.nonzero().flatten().tolist())


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    """Of each of the models."""
    return str(request.param)


@pytest.fixture
def kit() -> SimpleNamespace:
    return SimpleNamespace(
        MODELS=MODELS, Residual=Residual, make=make, images=images, loss=loss, static=static, look=look
    )

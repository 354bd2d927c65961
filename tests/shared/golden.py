"""Trainings of which the masks are known that the authors' own program makes; tests/methods/golden/README.md says how.

Weights and gradients are whole numbers over a power of two, shuffled by plain arithmetic. They are the same with any
version of torch, no two that compete are equal, and every sum that the optimizer makes of them is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

FILES = Path(__file__).parents[1] / "methods" / "golden"
EVERY, PRUNE_END, TAKEN, TOTAL = 2, 8, 10, 14
"""Steps: between updates, to the end of pruning, taken here, and of the training that they begin."""
SETTINGS: dict[str, tuple[str, float, float]] = {
    "granet-dense": ("GraNet", 0.0, 0.9),
    "granet-sparse": ("GraNet", 0.5, 0.9),
    "gmp": ("GMP", 0.0, 0.9),
    "rigl-itop": ("DST", 0.8, 0.8),
}
"""What the authors call the method, and the sparsity at first and at last."""


def shuffled(count: int, seed: int) -> list[float]:
    """The numbers 1 to ``count`` in a mixed order, with mixed signs, by Knuth's linear congruential generator."""
    state, states = seed, []
    for _ in range(count + 1):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        states.append(state >> 20)
    order = sorted(range(count), key=states[1:].__getitem__)
    return [float(1 + place) * (1 if states[i + 1] & 1 else -1) for i, place in enumerate(order)]


def network() -> nn.Sequential:
    """Layers whose forward pass nobody calls."""
    layers = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(8, 6, 3, bias=False), nn.Linear(43, 18, bias=False)
    model = nn.Sequential(*layers)
    values = iter(shuffled(sum(weight.numel() for weight in model.parameters()), seed=3))
    for weight in model.parameters():
        weight.data.copy_(torch.tensor([next(values) for _ in range(weight.numel())]).view_as(weight) / 2**11)
    return model


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)


def first_masks(model: nn.Module, sparsity: float) -> dict[str, Tensor]:
    """Dense, or as many zeros in every layer."""
    return {
        name: (torch.tensor(shuffled(weight.numel(), seed=5)).abs() > sparsity * weight.numel()).view_as(weight)
        for name, weight in model.named_parameters()
    }


def updates(
    model: nn.Module, step: Callable[[], object], masks: Callable[[], dict[str, Tensor]]
) -> Iterator[dict[str, Tensor]]:
    """Train, by what takes an optimizer step there; the masks after each update."""
    for done in range(1, TAKEN + 1):
        for place, weight in enumerate(model.parameters()):
            gradient = torch.tensor(shuffled(weight.numel(), seed=100 * done + place)) / 2**9
            weight.grad = gradient.view_as(weight).to(weight.dtype)
        step()
        if done % EVERY == 0:
            yield {name: mask.bool().clone() for name, mask in masks().items()}


def packed(found: list[dict[str, Tensor]]) -> dict[str, np.ndarray]:
    """As they are written: for every layer [updates, bytes]."""
    return {name: np.packbits([masks[name].flatten().numpy() for masks in found], axis=1) for name in found[0]}


def golden(setting: str) -> dict[str, np.ndarray]:
    return load_file(FILES / f"{setting}.safetensors")

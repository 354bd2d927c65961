"""Trainings with something behind the weights: the four methods, on one small net."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from bits import Parts, differences, flatten

STEPS = 12
METHODS: dict[str, granet.Method] = {
    "gmp-original": granet.GMPOriginal(sparsity=0.5, every=2, prune_end=10, distribution="global"),
    "dpf": granet.DPF(sparsity=0.5, every=2, prune_end=8),
    "str": granet.STR(s_init=-3.5, every=3),
    "vd": granet.VD(examples=30, log_sigma2=-4.0, end=4, every=3),
}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd-fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.03),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.03, fused=True),
}


class Run(Parts):
    """A training; its noise is a function of the step."""

    def __init__(
        self, method: str, optimizer: str = "sgd", seed: int = 0, dtype: torch.dtype = torch.float32, steps: int = STEPS
    ) -> None:
        torch.manual_seed(seed)
        self.dtype = dtype
        self.model = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4)
        ).to(dtype)  # fmt: skip
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.sparsifier = granet.sparsify(self.model, self.optimizer, METHODS[method], total_steps=steps, seed=seed)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(8, 2, 5, 5, generator=torch.Generator().manual_seed(step))
        return x.to(self.dtype), x.flatten(1)[:, :4].argmax(1)

    def loss(self, step: int) -> Tensor:
        x, y = self.batch(step)
        torch.manual_seed(step)
        return nn.functional.cross_entropy(self.model(x).float(), y)

    def train(self, first: int, last: int) -> Run:
        for step in range(first, last):
            self.optimizer.zero_grad()
            self.loss(step).backward()
            self.optimizer.step()
        return self

    def tensors(self) -> dict[tuple, Any]:
        """Every value of the state, by its path; tensors are copied."""
        return flatten(self.state())

    def zeros(self) -> int:
        return sum(int((layer.weight == 0).sum()) for layer in self.sparsifier.layers.values())


@pytest.fixture
def kit() -> SimpleNamespace:
    return SimpleNamespace(Run=Run, differences=differences, flatten=flatten, steps=STEPS)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return request.param

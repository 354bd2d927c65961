"""Small networks in which dropped filters are heard by others in every way there is."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import granet


def plain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(inplace=True), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(48, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 4),
    )  # fmt: skip


class Residual(nn.Module):
    """A block with a shortcut that has filters too; what is behind reads the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.short, self.bn3 = nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        out += self.bn3(self.short(x))
        return self.fc(F.relu(out).mean((2, 3)))


class Separable(nn.Module):
    """Depthwise and grouped convolutions, a gate, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.SiLU())
        self.gate = nn.Conv2d(8, 8, 1)
        self.paired = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(16, 6, 2, groups=2)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.deep(self.stem(x))
        x = x * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(x, 1)))
        x = torch.cat([x, torch.tanh(self.paired(x))], dim=1)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.up(x), 1), 1))


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "plain": (plain, "4.weight"),
    "vgg": (vgg, "13.weight"),
    "residual": (Residual, "fc.weight"),
    "separable": (Separable, "fc.weight"),
}


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


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    """Of each of the models."""
    return str(request.param)


@pytest.fixture
def kit() -> SimpleNamespace:
    return SimpleNamespace(MODELS=MODELS, Residual=Residual, make=make, images=images, loss=loss, static=static)

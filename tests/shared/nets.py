"""Small networks in which channels are heard by others in every way there is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))


def vgg() -> nn.Sequential:
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


CHANNELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "plain": (plain, "4.weight"),
    "vgg": (vgg, "13.weight"),
    "residual": (Residual, "fc.weight"),
    "separable": (Separable, "fc.weight"),
}
"""Each with its classifier, whose outputs are no channels; for images of 3x8x8."""


def blocks() -> nn.Sequential:
    """Its layers are divided by every pattern; for images of 4x5x5."""
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.ConvTranspose2d(8, 12, 2, groups=2), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 4),
    )  # fmt: skip


def matrices() -> nn.Sequential:
    """Nothing but matrices, as Muon wants it; for images of 4x5x5."""
    layers = nn.Linear(100, 16, bias=False), nn.ReLU(), nn.Linear(16, 8, bias=False), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(8, 4, bias=False))

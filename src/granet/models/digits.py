"""A small convolutional network for the embedded 8x8 digits."""

from __future__ import annotations

from torch import Tensor, nn


class DigitsNet(nn.Module):
    """Three 3x3 convolutions and two linear layers, 159,264 sparsifiable weights.

    conv 32 - conv 64 - pool - conv 128 - pool - linear 128 - linear, each but the last followed by batch norm and ReLU.
    It is several times wider than the task needs, so that at 90 % sparsity (15,926 weights left) there is something to
    choose from, and small enough that an epoch takes well under a second on a CPU.
    """

    def __init__(self, *, num_classes: int = 10, in_channels: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_conv(in_channels, 32),
            *_conv(32, 64),
            nn.MaxPool2d(2),
            *_conv(64, 128),
            nn.MaxPool2d(2),
        )
        self.hidden = nn.Sequential(nn.Linear(128 * 2 * 2, 128, bias=False), nn.BatchNorm1d(128), nn.ReLU(inplace=True))
        self.classifier = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (N, num_classes) for images of shape (N, in_channels, 8, 8)."""
        hidden = self.hidden(self.features(x).flatten(1))
        logits: Tensor = self.classifier(hidden)
        return logits


def _conv(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    """A 3x3 convolution that keeps the size, batch norm, ReLU."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)

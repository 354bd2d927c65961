"""The small network of the embedded data."""

import torch
from torch import nn

from granet.models.digits import DigitsNet


def test_weights_and_output() -> None:
    model = DigitsNet(num_classes=7, in_channels=3)
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 7)
    sparsifiable = [module.weight for module in DigitsNet().modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert sum(weight.numel() for weight in sparsifiable) == 159_264

"""Random networks with random dead filters: the same outputs, no dead filter left, parameters as counted by hand."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import granet
from quick import slow_but_for
from smaller import compacted, shaken


class Net(nn.Module):
    """Blocks of several kinds in any order, each of which keeps its number of channels a secret of its own."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.kinds: list[str] = []
        width = 3
        for _ in range(draw.randint(2, 5)):
            kind = draw.choice(["plain", "bare", "norm", "wide", "depthwise", "pool"])
            outputs = width if kind in ("depthwise", "pool") else draw.randint(2, 9)
            groups, padding = (width, 1) if kind == "depthwise" else (1, draw.choice([0, 1]))
            if kind == "pool":
                layer: nn.Module = nn.MaxPool2d(2, 1)
            else:
                kernel = 2 * padding + 1
                layer = nn.Conv2d(width, outputs, kernel, padding=padding, groups=groups, bias=kind != "bare")
                if kind == "norm":
                    layer = nn.Sequential(layer, nn.BatchNorm2d(outputs))
            self.layers.append(layer)
            self.kinds.append(kind)
            width = outputs
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x.mean((2, 3)))


def convolutions(model: nn.Module) -> list[nn.Conv2d]:
    return [module for module in model.modules() if isinstance(module, nn.Conv2d)]


@pytest.mark.parametrize("seed", slow_but_for([0], range(15)))
def test_random_networks(seed: int) -> None:
    draw = random.Random(seed)
    model = shaken(Net(draw), seed).double()
    with torch.no_grad():
        for layer in convolutions(model):
            rows = [row for row in range(layer.out_channels) if draw.random() < 0.4]
            layer.weight[rows] = 0
            if layer.bias is not None and draw.random() < 0.5:
                layer.bias[rows] = 0
            columns = [column for column in range(layer.weight.shape[1]) if draw.random() < 0.2]
            layer.weight[:, columns] = 0
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    small = compacted(model, x, torch.randn(3, 3, 12, 12, dtype=torch.float64), tolerance=1e-9)
    again = compacted(small, x, tolerance=1e-9)  # nothing is left to take out
    assert [p.shape for p in again.parameters()] == [p.shape for p in small.parameters()]


@pytest.mark.parametrize("seed", slow_but_for([0], range(5)))
def test_parameters_as_counted_by_hand(seed: int) -> None:
    """A chain in which dead filters are silent: each layer keeps its live filters, of the live filters before it."""
    draw = random.Random(seed)
    widths = [3, *(draw.randint(2, 12) for _ in range(3))]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    model = shaken(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 5)))
    alive = [3]
    for place, width in enumerate(widths[1:]):
        dead = draw.sample(range(width), draw.randint(0, width - 1))
        model[3 * place].weight.data[dead] = 0
        model[3 * place + 1].bias.data[dead] = 0
        model[3 * place + 1].running_mean[dead] = 0
        alive.append(width - len(dead))
    by_hand = sum(9 * a * b + 2 * b for a, b in pairwise(alive)) + 5 * alive[-1] + 5
    reports: list[granet.Compaction] = []
    small = granet.compact(model, torch.randn(1, 3, 8, 8), tell=reports.append)
    assert sum(parameter.numel() for parameter in small.parameters()) == by_hand == reports[0].parameters[1]
    assert reports[0].parameters[0] == sum(parameter.numel() for parameter in model.parameters())
    flops = sum(2 * 64 * 9 * a * b for a, b in pairwise(alive)) + 2 * 5 * alive[-1]
    assert reports[0].flops[1] == flops
    assert reports[0].staying == ()

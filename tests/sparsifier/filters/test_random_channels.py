"""Channels that are taken for silent, in models at random: they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quick import slow_but_for

Kit = SimpleNamespace
IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)) + 0.1


@dataclass(frozen=True)
class Call:
    name: str
    operator: str
    operands: tuple[int, ...]


class Random(nn.Module):
    """Images of 4 or 8 channels go through operators; each call's result may be read by any later one."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = random.Random(seed)
        self.calls: list[Call] = []
        self.add_module("first", nn.Conv2d(3, 4, 3, padding=1))
        widths, owners = [4], ["first"]
        self.dropped: dict[str, set[int]] = {"first": {0, 2}}
        for number in range(generator.randint(4, 12)):
            name, operator = f"m{number}", generator.choice(OPERATORS)
            at = generator.randrange(len(widths))
            alike = [i for i, width in enumerate(widths) if width == widths[at]]
            other = generator.choice(alike)
            width, owner = widths[at], ""
            if operator in ("conv", "deep"):
                groups = width if operator == "deep" else generator.choice((1, 2))
                new = generator.choice((4, 8)) if operator == "conv" else width
                bias = generator.random() < 0.5
                self.add_module(name, nn.Conv2d(width, new, 3, padding=1, groups=groups, bias=bias))
                width, owner = new, name
                self.dropped[name] = {channel for channel in range(width) if generator.random() < 0.6}
            elif operator == "norm":
                self.add_module(name, nn.BatchNorm2d(width))
                if owners[at]:
                    self.dropped[name] = self.dropped[owners[at]]
            elif operator == "cat":
                if width > 4:
                    continue
                width = 8
            self.calls.append(Call(name, operator, (at, other)))
            widths.append(width)
            owners.append(owner)
        self.add_module("last", nn.Linear(widths[-1] * 16, 2))

    def forward(self, x: Tensor) -> Tensor:
        known = [self.first(x)]
        for call in self.calls:
            x, y = known[call.operands[0]], known[call.operands[1]]
            if call.operator in ("conv", "deep", "norm"):
                x = self.get_submodule(call.name)(x)
            elif call.operator == "write":
                x.add_(1)
                x = y
            elif call.operator == "augment":
                x += y
            else:
                x = FUNCTIONS[call.operator](x, y)
            known.append(x)
        return self.last(F.adaptive_max_pool2d(known[-1], 4).flatten(1))


FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda x, y: F.relu(x, inplace=True),
    "sigmoid": lambda x, y: torch.sigmoid(x),
    "sum": torch.add,
    "product": torch.mul,
    "cat": lambda x, y: torch.cat([x, y], 1),
}
OPERATORS = ("conv", "conv", "deep", "norm", "write", "augment", *FUNCTIONS)


@pytest.mark.parametrize("seed", slow_but_for(range(2), range(10)))
def test_what_is_taken_for_silent_is(kit: Kit, seed: int) -> None:
    found = 0
    for number in range(20):
        model = Random(100 * seed + number)
        with torch.no_grad():
            known, seen = kit.look(model, IMAGES, model.dropped)
        for name, silent in known.items():
            if name in seen:
                assert silent <= seen[name]
            found += len(silent)
    assert found > 50

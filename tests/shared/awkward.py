"""Graphs that are awkward to cut into plans, and blocks that networks are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Flow(nn.Module):
    """Modules by name, called by a function."""

    def __init__(self, forward: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args: Any) -> Any:
        return self._forward(self, *args)


class Inverted(nn.Module):
    """A block of MobileNetV2."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU6()]
        layers += [nn.Conv2d(4 * width, 4 * width, 3, stride, 1, groups=4 * width, bias=False)]
        layers += [nn.BatchNorm2d(4 * width), nn.ReLU6(), nn.Conv2d(4 * width, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.layers = nn.Sequential(*layers)
        self.skips = width == out and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.skips else self.layers(x)


def conv(width: int, out: int, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(width, out, 3, padding=1, **options)


AWKWARD: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...], bool]] = {
    "conv without norm": (lambda: nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 5, bias=False)), ((2, 3, 8, 8),), True),
    "norm without conv": (
        lambda: nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), conv(3, 4), nn.Tanh(), nn.BatchNorm2d(4)),
        ((2, 3, 8, 8),),
        False,
    ),
    "norm after norm": (
        lambda: nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False)),
        ((2, 3, 8, 8),),
        True,
    ),
    "norm of rows": (
        lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
        ((3, 6),),
        True,
    ),
    "norm of what is read twice": (
        lambda: Flow(lambda m, x: m.b(y := m.a(x)) + y, a=conv(3, 4), b=nn.BatchNorm2d(4)),
        ((2, 3, 8, 8),),
        True,
    ),
    "two inputs, two outputs": (
        lambda: Flow(lambda m, x, y: (m.b(y), F.relu(m.a(x) + m.b(y))), a=conv(3, 4), b=conv(2, 4)),
        ((2, 3, 8, 8), (2, 2, 8, 8)),
        True,
    ),
    "inputs that meet late": (
        lambda: Flow(lambda m, x, y: m.a(F.relu(m.b(y))) + x, a=conv(4, 3), b=conv(2, 4)),
        ((2, 3, 8, 8), (2, 2, 8, 8)),
        True,
    ),
    "an input that is an output": (lambda: Flow(lambda m, x: (m.a(x), x), a=conv(3, 4)), ((2, 3, 8, 8),), False),
    "the same output twice": (
        lambda: Flow(lambda m, x: (y := m.a(x), y, F.relu(y)), a=conv(3, 4)),
        ((2, 3, 8, 8),),
        False,
    ),
    "an input that nothing reads": (
        lambda: Flow(lambda m, x, y: m.a(x), a=conv(3, 4)),
        ((2, 3, 8, 8), (1,)),
        False,
    ),
    "a chain of residuals": (
        lambda: Flow(
            lambda m, x: F.relu(m.c(y := F.relu(m.b(z := F.relu(m.a(x))) + z)) + y + z),
            a=conv(3, 4),
            b=conv(4, 4),
            c=conv(4, 4),
        ),
        ((2, 3, 8, 8),),
        True,
    ),
    "twice itself": (lambda: Flow(lambda m, x: (y := m.a(x)) + y, a=conv(3, 4)), ((2, 3, 8, 8),), True),
    "a shared layer": (
        lambda: Flow(lambda m, x: m.a(F.relu(m.a(F.relu(m.a(x))))), a=conv(3, 3)),
        ((2, 3, 8, 8),),
        True,
    ),
    "a branch that PyTorch runs": (
        lambda: Flow(lambda m, x: m.b(torch.sin(m.a(x)) + m.a(x)), a=conv(3, 4), b=conv(4, 4)),
        ((2, 3, 8, 8),),
        False,
    ),
    "an addition of another shape": (
        lambda: Flow(lambda m, x: m.a(x) + x.mean((2, 3), keepdim=True).mean(1, keepdim=True), a=conv(3, 4)),
        ((2, 3, 8, 8),),
        False,
    ),
    "a multiple that is added": (
        lambda: Flow(lambda m, x: torch.add(m.a(x), x, alpha=2), a=conv(3, 3)),
        ((2, 3, 8, 8),),
        False,
    ),
    "strides, dilation, groups": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), groups=2), nn.Conv2d(6, 6, 3, dilation=2, padding="same", groups=6)
        ),
        ((1, 4, 9, 9),),
        True,
    ),
    "padding that is not even": (
        lambda: nn.Sequential(conv(3, 3), nn.Conv2d(3, 4, 2, padding="same")),
        ((1, 3, 5, 5),),
        False,
    ),
    "reflected padding": (
        lambda: nn.Sequential(conv(3, 4, padding_mode="reflect"), conv(4, 4)),
        ((1, 3, 5, 5),),
        False,
    ),
    "transposed": (lambda: nn.Sequential(conv(3, 4), nn.ConvTranspose2d(4, 2, 2, 2)), ((1, 3, 5, 5),), False),
    "pools": (
        lambda: nn.Sequential(
            conv(3, 4),
            nn.MaxPool2d(3, 2, 1, ceil_mode=True),
            nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
            nn.AvgPool2d(2, 1, 1),
            nn.AdaptiveAvgPool2d((3, 2)),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        ((2, 3, 16, 15),),
        True,
    ),
    "a mean that drops dimensions": (
        lambda: Flow(lambda m, x: m.b(m.a(x).mean((2, 3))), a=conv(3, 4), b=nn.Linear(4, 2)),
        ((2, 3, 8, 8),),
        True,
    ),
    "rows of many columns": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2, bias=False)),
        ((2, 5, 6),),
        True,
    ),
    "products": (
        lambda: Flow(lambda m, x: F.relu(x @ m.a.weight.t()) @ m.b.weight.t(), a=nn.Linear(6, 8), b=nn.Linear(8, 3)),
        ((4, 6),),
        True,
    ),
    "clamps": (
        lambda: Flow(lambda m, x: m.a(x).clamp(min=0) + m.a(x).clamp(0, 6) + m.a(x).clamp(-1, 1), a=conv(3, 4)),
        ((1, 3, 5, 5),),
        False,
    ),
    "in place": (
        lambda: Flow(lambda m, x: F.relu_(m.a(x)).add_(m.b(x)), a=conv(3, 4), b=conv(3, 4)),
        ((1, 3, 5, 5),),
        True,
    ),
    "normalised weights": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU()),
        ((2, 4),),
        True,
    ),
    "weights that are computed": (
        lambda: Flow(lambda m, x: F.linear(m.a(x), torch.ones_like(m.a.weight)) + 0 * torch.rand(4), a=nn.Linear(4, 4)),
        ((2, 4),),
        False,
    ),
}

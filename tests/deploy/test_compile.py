"""Compiled models give what PyTorch gives, whatever they are made of."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import granet
from deployed import as_trained, assert_close
from granet.deploy.plan import Conv, Linear


class Flow(nn.Module):
    """Modules by name, called by a function."""

    def __init__(self, forward: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args: Any) -> Any:
        return self._forward(self, *args)


def checked(model: nn.Module, *inputs: Tensor, compiled: granet.deploy.Compiled | None = None) -> Any:
    """The compiled model, which gives the same as the model in evaluation mode."""
    fast = compiled or granet.deploy.compile(model, inputs, engine="torch")
    with torch.no_grad():
        expected = model.eval()(*inputs)
    found = fast(*inputs)
    assert type(found) is type(expected)
    for one, other in zip(
        *([outputs] if isinstance(outputs, Tensor) else outputs for outputs in (found, expected)), strict=True
    ):
        assert_close(one, other)
    return fast


@pytest.mark.parametrize(
    ("name", "shape", "ops"),
    [("vgg19", (16, 3, 32, 32), 23), ("resnet20", (1, 3, 32, 32), 24), ("resnet50", (1, 3, 48, 48), 57)],
)
def test_the_papers_networks_are_one_plan_each(name: str, shape: tuple[int, ...], ops: int) -> None:
    model = as_trained(granet.create_model(name, num_classes=10))
    compiled = checked(model, torch.randn(shape))
    assert compiled.whole is not None
    assert len(compiled.whole.ops) == ops  # batch norms, activations and residual additions are in the layers
    sparse = [compiled.whole.arrays[op.weight] for op in compiled.whole.ops if isinstance(op, Conv | Linear)]
    assert all(array.positions is not None for array in sparse)


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


def test_depthwise_networks_are_one_plan() -> None:
    stem = (nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 5))
    model = nn.Sequential(*stem, Inverted(8, 8, 1), Inverted(8, 16, 2), Inverted(16, 16, 1), *head)
    compiled = checked(as_trained(model, 0.5), 3 * torch.randn(2, 3, 32, 32))
    assert compiled.whole is not None
    assert len(compiled.whole.ops) == 1 + 3 * 3 + 3


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


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_graphs_give_the_same(name: str) -> None:
    make, shapes, whole = AWKWARD[name]
    torch.manual_seed(0)
    compiled = checked(as_trained(make(), 0.3), *(torch.randn(shape) for shape in shapes))
    assert (compiled.whole is not None) == whole


def test_weights_that_layers_share_are_stored_once() -> None:
    make, shapes, _ = AWKWARD["a shared layer"]
    compiled = checked(make(), torch.randn(shapes[0]))
    assert [op.weight for op in compiled.whole.ops] == [0, 0, 0]
    assert len(compiled.whole.arrays) == 2


def test_the_model_is_as_it_was_and_what_is_done_to_it_later_changes_nothing() -> None:
    model = as_trained(nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.Dropout()))
    model[2].eval()
    images = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    compiled = granet.deploy.compile(model, images, engine="torch")
    assert [module.training for module in model] == [True, True, False]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    expected = model.eval()(images)
    nn.init.zeros_(model[0].weight)
    assert_close(compiled(images), expected)
    assert_close(compiled(images.contiguous()), expected)
    assert not compiled(images.requires_grad_()).requires_grad


def test_buffers_that_a_model_writes_are_written() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x) + self.calls
            self.calls += 1
            return torch.sin(y) + self.calls

    model, images = Counting(), torch.randn(2, 3)
    compiled = granet.deploy.compile(model, images, engine="torch")
    model.calls.zero_()
    expected = [model(images) for _ in range(3)]
    model.calls.zero_()
    for each in expected:
        assert_close(compiled(images), each)


def test_several_threads_may_call_at_once() -> None:
    model = as_trained(granet.create_model("resnet20", num_classes=10, width=0.5)).eval()
    batches = [torch.randn(1, 3, 32, 32) for _ in range(16)]
    compiled = granet.deploy.compile(model, batches[0])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(compiled, batches))
    for one, batch in zip(found, batches, strict=True):
        assert_close(one, model(batch))

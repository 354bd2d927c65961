"""Compiled models give what PyTorch gives, whatever they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from awkward import AWKWARD, Inverted, conv
from deployed import as_trained, assert_close, assert_engines_agree
from granet.deploy.compiled import Engine
from granet.deploy.operators import Conv, Linear
from granet.deploy.plan import Plan
from quick import slow_but_for

Engines = dict[str, Callable[[Plan, int], Engine]]


def checked(model: nn.Module, *inputs: Tensor, others: Engines, able: set[str] | None = None) -> Any:
    """The compiled model, which gives the same as the model in evaluation mode, as do other engines."""
    fast = granet.deploy.compile(model, inputs, engine="torch")
    for plan in fast.plans:
        assert set(assert_engines_agree(plan, others)) == (set(others) if able is None else able & set(others))
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
    slow_but_for(
        [],
        [("vgg19", (16, 3, 32, 32), 23), ("resnet20", (1, 3, 32, 32), 24), ("resnet50", (1, 3, 48, 48), 57)],
    ),
)
def test_the_papers_networks_are_one_plan_each(
    name: str, shape: tuple[int, ...], ops: int, other_engines: Engines
) -> None:
    model = as_trained(granet.create_model(name, num_classes=10))
    compiled = checked(model, torch.randn(shape), others=other_engines)
    assert compiled.whole is not None
    assert len(compiled.whole.ops) == ops  # batch norms, activations and residual additions are in the layers
    sparse = [compiled.whole.arrays[op.weight] for op in compiled.whole.ops if isinstance(op, Conv | Linear)]
    assert all(array.positions is not None for array in sparse)


def test_depthwise_networks_are_one_plan(other_engines: Engines) -> None:
    stem = (nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 5))
    model = nn.Sequential(*stem, Inverted(8, 8, 1), Inverted(8, 16, 2), Inverted(16, 16, 1), *head)
    compiled = checked(as_trained(model, 0.5), 3 * torch.randn(2, 3, 32, 32), others=other_engines, able={"openvino"})
    assert compiled.whole is not None
    assert len(compiled.whole.ops) == 1 + 3 * 3 + 3


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # PyTorch says so once a process
@pytest.mark.parametrize("name", slow_but_for(list(AWKWARD)[::9], AWKWARD))
def test_awkward_graphs_give_the_same(name: str, other_engines: Engines) -> None:
    make, shapes, whole = AWKWARD[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    able = {"pools": set(), "clamps": {"openvino"}}.get(name)
    compiled = checked(as_trained(make(), 0.3), *inputs, others=other_engines, able=able)
    assert (compiled.whole is not None) == whole


def test_weights_that_layers_share_are_stored_once() -> None:
    make, shapes, _ = AWKWARD["a shared layer"]
    compiled = granet.deploy.compile(make(), torch.randn(shapes[0]), engine="torch")
    assert compiled.whole is not None
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

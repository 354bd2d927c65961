"""What the networks compute, beside their published formulas written out: where norms, ReLUs, sums and pools stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from granet.models import create_model


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def norm(x: Tensor, module: nn.Module) -> Tensor:
    assert isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d)
    assert module.running_mean is not None
    assert module.running_var is not None
    side = (1, -1, 1, 1)[: x.ndim]
    mean, variance, weight, bias = (
        value.view(side) for value in (module.running_mean, module.running_var, module.weight, module.bias)
    )
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def basic(block: nn.Module, x: Tensor, stride: int) -> Tensor:
    out = norm(functional.conv2d(x, block.conv1.weight, stride=stride, padding=1), block.bn1).relu()
    return norm(functional.conv2d(out, block.conv2.weight, padding=1), block.bn2)


def bottleneck(block: nn.Module, x: Tensor, stride: int) -> Tensor:
    out = norm(functional.conv2d(x, block.conv1.weight), block.bn1).relu()
    out = norm(functional.conv2d(out, block.conv2.weight, stride=stride, padding=1), block.bn2).relu()
    return norm(functional.conv2d(out, block.conv3.weight), block.bn3)


def resnet(model: nn.Module, x: Tensor, residual: Callable[[nn.Module, Tensor, int], Tensor]) -> Tensor:
    """The shortcut is added before the last ReLU of a block; it is the block's input wherever that has the shape."""
    large = model.conv1.weight.shape[-1] == 7
    x = functional.conv2d(x, model.conv1.weight, stride=2 if large else 1, padding=3 if large else 1)
    x = norm(x, model.bn1).relu()
    x = functional.max_pool2d(x, 3, stride=2, padding=1) if large else x
    for number, stage in enumerate(child for name, child in model.named_children() if name.startswith("layer")):
        for index, block in enumerate(stage):
            stride = 2 if number > 0 and index == 0 else 1
            out = residual(block, x, stride)
            if out.shape != x.shape:
                convolution, its_norm = block.downsample
                x = norm(functional.conv2d(x, convolution.weight, stride=stride), its_norm)
            x = (out + x).relu()
    return functional.linear(x.mean((2, 3)), model.fc.weight, model.fc.bias)


def vgg(model: nn.Module, x: Tensor) -> Tensor:
    """Two, two, four, four and four convolutions, and a max-pool between these groups."""
    pairs = [m for m in model.features if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]
    for index, (convolution, its_norm) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        x = functional.max_pool2d(x, 2) if index in (2, 4, 8, 12) else x
        x = norm(functional.conv2d(x, convolution.weight, padding=1), its_norm).relu()
    return functional.linear(x.mean((2, 3)), model.classifier.weight, model.classifier.bias)


def digits(model: nn.Module, x: Tensor) -> Tensor:
    pairs = [m for m in model.features if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]
    for index, (convolution, its_norm) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        x = norm(functional.conv2d(x, convolution.weight, padding=1), its_norm).relu()
        x = functional.max_pool2d(x, 2) if index > 0 else x
    hidden, its_norm = model.hidden[:2]
    x = norm(functional.linear(x.flatten(1), hidden.weight), its_norm).relu()
    return functional.linear(x, model.classifier.weight, model.classifier.bias)


@pytest.mark.parametrize(
    ("name", "side", "written_out"),
    [
        ("resnet20", 16, lambda model, x: resnet(model, x, basic)),
        ("resnet50_cifar", 16, lambda model, x: resnet(model, x, bottleneck)),
        ("resnet50", 64, lambda model, x: resnet(model, x, bottleneck)),
        ("vgg19", 32, vgg),
        ("digits_net", 8, digits),
    ],
)
def test_output(name: str, side: int, written_out: Callable[[nn.Module, Tensor], Tensor]) -> None:
    width = {} if name == "digits_net" else {"width": 0.125}
    model = create_model(name, num_classes=7, in_channels=2, **width).double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):  # no norm may pass for another, or for none
            nn.init.normal_(module.running_mean, 0.0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.0, 0.3)
    nn.init.normal_((model.fc if hasattr(model, "fc") else model.classifier).weight)
    image = torch.randn(2, 2, side, side, dtype=torch.float64)
    with torch.no_grad():
        expected = written_out(model, image)
        assert expected.std() > 0.01
        torch.testing.assert_close(model(image), expected)

"""The networks have the sizes of the published ones: weights, batch-norm parameters, biases, multiply-adds."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from granet.models import create_model


class Size(NamedTuple):
    weights: int  # of convolutions and linear layers
    tensors: int
    norm: int
    biases: int
    total: int
    macs: int


PAPER = {
    ("resnet20", 10, 32): Size(270_896, 22, 1_568, 10, 272_474, 40_813_184),
    ("vgg19", 10, 32): Size(20_024_000, 17, 11_008, 10, 20_035_018, 398_136_320),
    ("vgg19", 100, 32): Size(20_070_080, 17, 11_008, 100, 20_081_188, 398_182_400),
    ("resnet50_cifar", 10, 32): Size(23_467_712, 54, 53_120, 0, 23_520_832, 1_297_829_888),
    ("resnet50_cifar", 100, 32): Size(23_652_032, 54, 53_120, 0, 23_705_152, 1_298_014_208),
    ("resnet50", 1000, 224): Size(25_502_912, 54, 53_120, 1_000, 25_557_032, 4_089_184_256),
}


def measure(model: nn.Module, image: Tensor) -> Size:
    """Counts parameters by the type of their module, and multiply-adds of one forward pass by hooks."""
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    macs = 0

    def count(module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal macs
        positions = output[0, 0].numel() if output.ndim == 4 else 1
        assert isinstance(module.weight, Tensor)
        macs += module.weight.numel() * positions

    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        model.eval()(image)
    for hook in hooks:
        hook.remove()
    return Size(
        weights=sum(layer.weight.numel() for layer in layers),
        tensors=len(layers),
        norm=sum(p.numel() for norm in norms for p in norm.parameters()),
        biases=sum(layer.bias.numel() for layer in layers if layer.bias is not None),
        total=sum(p.numel() for p in model.parameters()),
        macs=macs,
    )


@pytest.mark.parametrize(("name", "classes", "side"), PAPER)
def test_size_is_the_published_one(name: str, classes: int, side: int) -> None:
    with torch.device("meta"):  # shapes only
        size = measure(create_model(name, num_classes=classes), torch.zeros(1, 3, side, side))
    assert size == PAPER[name, classes, side]


@pytest.mark.parametrize(("name", "depth"), [("resnet20", 20), ("resnet32", 32), ("resnet56", 56)])
def test_a_cifar_resnet_has_as_many_layers_as_its_name_says(name: str, depth: int) -> None:
    model = create_model(name, num_classes=10)
    weighted = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "downsample" not in n]
    assert len(weighted) == depth
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(("width", "sparsity"), [(0.465, 0.8), (0.34, 0.9), (0.26, 0.95), (0.231, 0.965)])
def test_small_dense_resnet50_is_as_large_as_the_sparse_one_with_its_bitmask(width: float, sparsity: float) -> None:
    """RigL's multipliers equate storage: a sparse network keeps (1 - s) floats and one bit of 32 for each weight."""
    with torch.device("meta"):
        small = sum(p.numel() for p in create_model("resnet50", num_classes=1000, width=width).parameters())
    assert small / 25_557_032 == pytest.approx(1 - sparsity + 1 / 32, rel=0.035)


@pytest.mark.parametrize("name", ["resnet20", "vgg19", "resnet50_cifar", "resnet50"])
def test_width_leaves_input_and_output_alone(name: str) -> None:
    model = create_model(name, num_classes=7, width=0.25, in_channels=1).eval()
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert layers[0].weight.shape[1] == 1
    assert layers[-1].weight.shape[0] == 7
    assert layers[0].weight.shape[0] == (4 if name == "resnet20" else 16)
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 7)


def test_the_least_of_everything() -> None:
    """No layer is ever without a channel, and one class is a number of classes."""
    model = create_model("vgg19", num_classes=1, width=0.001)
    channels = [m.weight.shape[0] for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert channels == [1] * 17

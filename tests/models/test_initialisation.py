"""Starting weights follow the distribution each network is published with; names follow torchvision's."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from granet.models import create_model
from granet.models.resnet import resnet_cifar
from refusals import refused


def layers(name: str) -> dict[str, nn.Conv2d | nn.Linear]:
    torch.manual_seed(0)
    model = create_model(name, num_classes=10)
    return {key: m for key, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}


def fan(layer: nn.Conv2d | nn.Linear) -> tuple[int, int]:
    receptive = layer.weight[0, 0].numel() if layer.weight.ndim == 4 else 1
    return layer.weight.shape[1] * receptive, layer.weight.shape[0] * receptive


def expected_deviation(name: str, layer: nn.Conv2d | nn.Linear) -> float:
    fan_in, fan_out = fan(layer)
    linear = isinstance(layer, nn.Linear)
    if name == "vgg19":
        return 0.01 if linear else math.sqrt(2 / fan_out)
    if name == "resnet50_cifar" or (name == "resnet50" and linear):
        return math.sqrt(1 / (3 * fan_in))  # uniform in +-1/sqrt(fan_in), PyTorch's default
    return math.sqrt(2 / fan_in)


@pytest.mark.parametrize("name", ["resnet20", "vgg19", "resnet50_cifar", "resnet50"])
def test_deviation_of_every_layer(name: str) -> None:
    for key, layer in layers(name).items():
        count = layer.weight.numel()
        tolerance = 5 / math.sqrt(2 * count)  # five standard errors of a normal sample's deviation
        assert layer.weight.std().item() == pytest.approx(expected_deviation(name, layer), rel=tolerance), key


def test_uniform_and_normal_shapes() -> None:
    """A uniform sample never leaves its bounds; a normal one of this size always leaves two deviations."""
    uniform = layers("resnet50_cifar")["layer4.1.conv2"].weight
    normal = layers("resnet50")["layer4.1.conv2"].weight
    assert uniform.abs().max() <= uniform.std() * math.sqrt(3) * 1.01
    assert normal.abs().max() > 4 * normal.std()


def test_vgg_bias_is_zero_and_cifar_resnet50_has_none() -> None:
    vgg, resnet = layers("vgg19")["classifier"], layers("resnet50_cifar")["fc"]
    assert vgg.bias is not None
    assert not vgg.bias.any()
    assert resnet.bias is None


def test_batch_norm_starts_at_one() -> None:
    model = create_model("resnet20", num_classes=10)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert torch.equal(module.weight, torch.ones_like(module.weight))


def test_imagenet_resnet50_has_torchvisions_parameter_names() -> None:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = ["conv1.weight", *(f"bn1.{n}" for n in norm)]
    for stage, depth in enumerate((3, 4, 6, 3), start=1):
        for block in range(depth):
            prefix = f"layer{stage}.{block}"
            for number in (1, 2, 3):
                names += [f"{prefix}.conv{number}.weight", *(f"{prefix}.bn{number}.{n}" for n in norm)]
            if block == 0:
                names += [f"{prefix}.downsample.0.weight", *(f"{prefix}.downsample.1.{n}" for n in norm)]
    names += ["fc.weight", "fc.bias"]
    assert list(create_model("resnet50", num_classes=1000).state_dict()) == names


def test_same_seed_same_weights() -> None:
    first, second = layers("resnet20"), layers("resnet20")
    assert all(torch.equal(first[key].weight, second[key].weight) for key in first)


@pytest.mark.parametrize("depth", [2, 18, 21, 0, -4])
def test_impossible_depths_are_refused(depth: int) -> None:
    with refused("depth", depth):
        resnet_cifar(depth)

"""Networks by name: known ones, imported ones, timm's, and what is said about wrong ones."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from granet.models import create_model, list_models
from refusals import refused


def own_factory(num_classes: int, hidden: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, hidden), nn.Linear(hidden, num_classes))


def factory_without_arguments() -> nn.Module:
    return nn.Linear(3, 3)


def factory_of_anything(**given: Any) -> nn.Module:
    return nn.Linear(given["in_channels"] * given["side"], given["num_classes"])


def factory_of_nothing() -> str:
    return "not a network"


NETWORK = nn.Linear(2, 10)
NOT_CALLABLE = 3


def test_every_listed_model_can_be_built() -> None:
    for name in list_models():
        assert isinstance(create_model(name, num_classes=10), nn.Module)


def test_logits_are_not_normalised() -> None:
    """The authors' CIFAR models end in log-softmax; ours do not, and the loss expects that."""
    torch.manual_seed(0)
    logits = create_model("resnet20", num_classes=np.int64(10))(torch.randn(4, 3, 32, 32))
    assert not torch.allclose(logits.exp().sum(1), torch.ones(4), atol=0.1)


def test_import_path_is_given_the_facts_it_takes_and_the_options_asked_for() -> None:
    model = create_model(f"{__name__}:own_factory", num_classes=5, in_channels=3, hidden=7)
    assert [layer.weight.shape for layer in model.children() if isinstance(layer, nn.Linear)] == [(7, 12), (5, 7)]
    assert isinstance(create_model(f"{__name__}:factory_without_arguments", num_classes=3), nn.Linear)


def test_a_factory_that_takes_any_argument_is_given_all_facts_and_options() -> None:
    model = create_model(f"{__name__}:factory_of_anything", num_classes=5, in_channels=3, side=4)
    assert isinstance(model, nn.Linear)
    assert model.weight.shape == (5, 12)


def test_class_on_a_module_is_a_factory_too() -> None:
    model = create_model("granet.models.digits:DigitsNet", num_classes=4)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 4)
    model = create_model("torch.nn:Linear", num_classes=10, in_features=8, out_features=4)
    assert model(torch.zeros(2, 8)).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("vgg16", {}, ("model", "vgg16", "digits_net, ", "did you mean 'vgg19'")),
        ("zzz", {}, ("model", "zzz", "digits_net, resnet20, ", "vgg19, timm:NAME or package.module:function")),
        ("vgg19", {"num_classes": 0}, ("num_classes", 0)),
        ("vgg19", {"num_classes": True}, ("num_classes", True)),
        *(("vgg19", {"width": width}, ("width", width)) for width in (0.0, float("nan"), float("inf"))),
        ("digits_net", {"width": 0.5}, ("width", 0.5, "must be 1")),
        ("vgg19", {"dropout": 0.5}, ("model", "vgg19", "'dropout'", "num_classes, width, in_channels")),
        (f"{__name__}:factory_without_arguments", {"hidden": 1}, ("model", ..., "'hidden'", "none")),
        ("math:sqrt", {}, ("model", ..., "nothing", "'x'")),
        *((f"{module}:net", {}, ("model", ..., repr(module))) for module in ("no.such.module", "")),
        (".mine:net", {}, ("model", ..., "without a dot")),
        (f"{__name__}:absent", {}, ("model", ..., "'absent'")),
        (f"{__name__}:NOT_CALLABLE", {}, ("model", ..., "not int")),
        (f"{__name__}:NETWORK", {}, ("model", ..., "is a network already")),
        (f"{__name__}:factory_of_nothing", {}, ("model", ..., "not a str")),
    ],
)
def test_wrong_values_are_named(name: str, arguments: dict[str, Any], told: tuple[Any, ...]) -> None:
    field, value, *tells = told
    with refused(field, name if value is ... else value, *tells):
        create_model(name, **{"num_classes": 10, **arguments})


def test_timm_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with refused("model", "timm:resnet18", "pip install timm"):
        create_model("timm:resnet18", num_classes=10)


def test_timm_model_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in with timm's three functions, so that the test needs no timm."""
    timm = ModuleType("timm")
    timm.list_models = lambda: ["resnet18", "resnet34"]  # type: ignore[attr-defined]
    timm.is_model = lambda name: name in ("resnet18", "resnet34")  # type: ignore[attr-defined]
    timm.create_model = lambda name, num_classes, in_chans: nn.Linear(in_chans, num_classes)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    model = create_model("timm:resnet18", num_classes=6, in_channels=2)
    assert isinstance(model, nn.Linear)
    assert model.weight.shape == (6, 2)
    with refused("model", "timm:resnet19", "resnet18"):
        create_model("timm:resnet19", num_classes=6)
    with refused("width", 2.0):
        create_model("timm:resnet18", num_classes=6, width=2.0)

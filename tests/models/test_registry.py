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
    ("name", "arguments", "message"),
    [
        ("vgg16", {}, r"model='vgg16': must be one of digits_net, .*\(did you mean 'vgg19'\?\)"),
        ("zzz", {}, "must be one of digits_net, resnet20, .*, vgg19, timm:NAME or package.module:function"),
        ("vgg19", {"num_classes": 0}, "num_classes=0: must be a whole number"),
        ("vgg19", {"num_classes": True}, "num_classes=True"),
        ("vgg19", {"width": 0.0}, "width=0.0: the width multiplier must be a positive number"),
        ("vgg19", {"width": float("nan")}, "width=nan"),
        ("vgg19", {"width": float("inf")}, "width=inf"),
        ("vgg19", {"dropout": 0.5}, "model 'vgg19' has no option 'dropout'; it has: num_classes, width, in_channels"),
        ("math:sqrt", {}, "model 'math:sqrt' cannot be called with nothing: missing a required argument: 'x'"),
        ("digits_net", {"width": 0.5}, "width=0.5: model 'digits_net' has no width multiplier"),
        ("no.such.module:net", {}, "cannot import module 'no.such.module'"),
        (":net", {}, "cannot import module ''"),
        (".mine:net", {}, "model='.mine:net': must be the whole name of a module, without a dot before it"),
        (f"{__name__}:absent", {}, "has no 'absent'"),
        (f"{__name__}:NOT_CALLABLE", {}, "'NOT_CALLABLE' is int, not a callable"),
        (f"{__name__}:NETWORK", {}, "NETWORK': is a network already; must be a function that makes one"),
        (f"{__name__}:factory_of_nothing", {}, "returned str, not a torch.nn.Module"),
        (f"{__name__}:factory_without_arguments", {"hidden": 1}, "no option 'hidden'; it has: none"),
    ],
)
def test_wrong_values_are_named(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_model(name, **{"num_classes": 10, **arguments})


def test_timm_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match=r"'timm:resnet18' needs the timm library \(pip install timm\)"):
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
    with pytest.raises(ValueError, match="timm has no model 'resnet19'; near: resnet18"):
        create_model("timm:resnet19", num_classes=6)
    with pytest.raises(ValueError, match="no width multiplier"):
        create_model("timm:resnet18", num_classes=6, width=2.0)

"""The paper's networks by name, and any other by import path.

>>> list_models()
('digits_net', 'resnet20', 'resnet32', 'resnet50', 'resnet50_cifar', 'resnet56', 'vgg19')
>>> model = create_model("resnet20", num_classes=10)
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from granet.checks import check_count
from granet.error_line import did_you_mean
from granet.import_path import imported
from granet.models.digits import DigitsNet
from granet.models.resnet import resnet50, resnet50_cifar, resnet_cifar
from granet.models.vgg import vgg19
from granet.plain_numbers import plain

__all__ = ["create_model", "list_models"]

Factory = Callable[..., nn.Module]


_FACTORIES: dict[str, Factory] = {
    "digits_net": DigitsNet,
    "resnet20": partial(resnet_cifar, 20),
    "resnet32": partial(resnet_cifar, 32),
    "resnet50": resnet50,
    "resnet50_cifar": resnet50_cifar,
    "resnet56": partial(resnet_cifar, 56),
    "vgg19": vgg19,
}


def list_models() -> tuple[str, ...]:
    """The names `create_model` knows by itself."""
    return tuple(sorted(_FACTORIES))


def create_model(
    name: str, *, num_classes: int, width: float = 1.0, in_channels: int | None = None, **options: Any
) -> nn.Module:
    """Build a network that returns logits for `num_classes` classes, freshly initialised.

    `name` is one of `list_models()`; or `timm:NAME` for a model of the timm library; or `package.module:function` for
    any importable callable that returns an `nn.Module`.

    `num_classes` and `in_channels` describe the data: they are passed to a factory whose signature has them; any other
    is trusted to fit. `width` (all hidden widths times this, for the Small-Dense baseline) and `options` ask for
    something: a factory that cannot do it is an error. `in_channels=None` leaves the factory's own default.
    """
    check_count("num_classes", num_classes)
    facts = {"num_classes": plain(num_classes)} | ({} if in_channels is None else {"in_channels": in_channels})
    if name.startswith("timm:"):
        return _timm_model(name.removeprefix("timm:"), facts, width, options)
    if ":" in name:
        return _call(name, _own_factory(name), facts, width, options)
    if name not in _FACTORIES:
        allowed = f"{', '.join(list_models())}, timm:NAME or package.module:function"
        raise ValueError(f"model={name!r}: must be one of {allowed}{did_you_mean(name, _FACTORIES)}")
    return _call(name, _FACTORIES[name], facts, width, options)


def _call(name: str, factory: Factory, facts: dict[str, int], width: float, options: dict[str, Any]) -> nn.Module:
    """Call `factory` with the facts its signature takes and with everything that was asked for."""
    parameters = inspect.signature(factory).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    arguments: dict[str, Any] = {key: value for key, value in facts.items() if takes_any or key in parameters}
    for key, value in options.items():
        if not takes_any and key not in parameters:
            raise ValueError(f"model={name!r}: has no option {key!r}; it has: {', '.join(parameters) or 'none'}")
        arguments[key] = value
    if "width" in parameters:
        arguments["width"] = width
    elif width != 1:
        raise ValueError(f"width={width}: must be 1, model {name!r} has no width multiplier")
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        given = ", ".join(arguments) or "nothing"
        raise ValueError(f"model={name!r}: must be what can be called with {given} ({error})") from error
    model = factory(**arguments)
    if not isinstance(model, nn.Module):
        raise ValueError(f"model={name!r}: must return a torch.nn.Module, not a {type(model).__name__}")
    return model


def _own_factory(name: str) -> Factory:
    """The callable that `package.module:function` names."""
    factory: Factory = imported("model", name)
    if not callable(factory):
        raise ValueError(f"model={name!r}: must be a function that makes a network, not {type(factory).__name__}")
    if isinstance(factory, nn.Module):  # calling it would be its forward pass
        raise ValueError(f"model={name!r}: is a network already; must be a function that makes one")
    return factory


def _timm_model(name: str, facts: dict[str, int], width: float, options: dict[str, Any]) -> nn.Module:
    """A timm model; untrained, unless `pretrained=True` is among the options."""
    try:
        timm: Any = importlib.import_module("timm")
    except ImportError as error:
        raise ValueError(f"model='timm:{name}': needs the timm library, pip install timm ({error})") from error
    if width != 1:
        raise ValueError(f"width={width}: must be 1, timm models have no width multiplier here")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise ValueError(f"model='timm:{name}': must be a model of timm{hint}")
    spelling = {"num_classes": "num_classes", "in_channels": "in_chans"}
    model: nn.Module = timm.create_model(name, **{spelling[key]: value for key, value in facts.items()}, **options)
    return model

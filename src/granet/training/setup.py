"""The model of a recipe, and the optimizer and the method that are made for it."""

from __future__ import annotations

import dataclasses
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from granet.error_line import error_line
from granet.methods import DENSE, create_method
from granet.models import create_model
from granet.probe.undisturbed import undisturbed
from granet.sparsifier import Sparsifier, sparsify
from granet.training.feeds import Data, Feed
from granet.training.recipe import Recipe, check_parent, method_class
from granet.training.rundir import RunDir


def make_model(recipe: Recipe, data: Data) -> nn.Module:
    """The recipe's network for those images, freshly initialised."""
    return create_model(recipe.model, num_classes=data.classes, in_channels=data.shape[0], width=recipe.width)


def check_outputs(recipe: Recipe, model: nn.Module, image: Tensor, classes: int) -> None:
    """ValueError unless the model takes such images and has an output for each class."""
    try:
        with undisturbed(model, [image]):
            outputs = model(image)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, AssertionError) as error:  # timm asserts the size, batch norm is a ValueError
        size = "x".join(map(str, image.shape[1:]))
        raise ValueError(f"model={recipe.model!r}: must take images of {size} ({error_line(error)})") from error
    if not isinstance(outputs, Tensor):
        raise ValueError(f"model={recipe.model!r}: must return a tensor, not a {type(outputs).__name__}")
    if outputs.ndim != 2 or outputs.shape[1] < classes:
        raise ValueError(
            f"model={recipe.model!r}: must return [images, {classes}] for the {classes} classes of {recipe.data}; "
            f"for one image it returns {list(outputs.shape)}"
        )


def make_sgd(recipe: Recipe, model: nn.Module) -> torch.optim.SGD:
    """SGD over the model's parameters; those that `no_decay` names are in a group of their own."""
    exempt = {
        id(parameter)
        for name, parameter in model.named_parameters()
        if any(fnmatchcase(name, glob) for glob in recipe.no_decay)
    }
    if recipe.no_decay and not exempt:
        raise ValueError(f"no_decay={recipe.no_decay!r}: must match a parameter of {recipe.model}")
    groups: list[dict[str, Any]] = [
        {"params": [parameter for parameter in model.parameters() if id(parameter) not in exempt]},
        {"params": [parameter for parameter in model.parameters() if id(parameter) in exempt], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=recipe.lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )


def attach_method(
    recipe: Recipe,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    feed: Feed,
    parent: Path | None,
) -> Sparsifier | None:
    """The recipe's method at work on the model, with whatever it asks to look at; None for dense training.

    A method with a field ``examples`` gets the number of training images, unless the recipe sets it. In a branch the
    method's clock starts where it branches off.
    """
    cls = method_class(recipe.method)
    check_parent(recipe)
    if cls is None:
        if recipe.method_fields:
            raise ValueError(f"method_fields={dict(recipe.method_fields)!r}: must be empty for method {DENSE!r}")
        return None
    method = create_method(recipe.method, **recipe.method_fields)
    if hasattr(method, "examples") and "examples" not in recipe.method_fields:
        counted: dict[str, Any] = {"examples": len(feed.train) * recipe.batch_size}
        method = dataclasses.replace(method, **counted)
    if method.needs_trained and parent is None:
        raise ValueError(f"parent={recipe.parent!r}: {recipe.method} starts from a finished run; name its folder")
    before = feed.train.random_state
    sparsifier = sparsify(
        model,
        optimizer,
        method,
        total_steps=(recipe.total_epochs - recipe.branch_epoch) * len(feed.train),
        steps_per_epoch=len(feed.train),
        seed=recipe.seed,
        exclude=recipe.exclude,
        batches=((images.float(), labels) for images, labels in feed.train.epoch()),
        loss=functional.cross_entropy,
        trained=RunDir(parent).trained_state(model) if parent and method.needs_trained else None,
    )
    feed.train.random_state = before  # the batches that the method looked at are trained on as well
    return sparsifier

"""Zeros counted where they are, and put where masks say they should be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from granet.error_line import and_more
from granet.masking import zero_inactive
from granet.names import matched
from granet.tensors.row import nonzero


@dataclass(frozen=True)
class ZeroCheck:
    """The zeros of the sparse weights as counted; true if there is one wherever a mask says so."""

    zeros: int
    numel: int
    stray: dict[str, int] = field(default_factory=dict)
    """Parameter to the number of its elements that are not zero though they should be."""

    @property
    def sparsity(self) -> float:
        return self.zeros / self.numel

    def __bool__(self) -> bool:
        return not self.stray

    def __str__(self) -> str:
        counted = f"{self.zeros:,} of {self.numel:,} sparse weights are zero ({self.sparsity:.2%})"
        if not self.stray:
            return f"{counted}, all that should be"
        worst = [f"{name} ({count:,})" for name, count in sorted(self.stray.items(), key=lambda one: -one[1])]
        named = ", ".join(worst[:6]) + and_more(worst, 6)
        return f"{counted}; {sum(self.stray.values()):,} are not zero though they should be: {named}"


@torch.no_grad()
def check_zeros(parameters: Mapping[str, Tensor], masks: Mapping[str, Tensor], counted: Collection[str]) -> ZeroCheck:
    """Compare parameters with their masks, waiting once; zeros are counted in those named in ``counted``."""
    device = next(iter(parameters.values())).device
    beyond = ((value != 0) & ~masks[name].to(value.device) for name, value in parameters.items())
    nonzeros, strays = torch.stack([nonzero(parameters.values(), device), nonzero(beyond, device)]).tolist()
    left = dict(zip(parameters, nonzeros, strict=True))
    numel = sum(parameters[name].numel() for name in counted)
    return ZeroCheck(
        zeros=numel - sum(left[name] for name in counted),
        numel=numel,
        stray={name: count for name, count in zip(parameters, strays, strict=True) if count},
    )


def named_alike(model: nn.Module, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of a model that have these masks, whatever it is wrapped in; ValueError if one is not there."""
    there = dict(model.named_parameters(remove_duplicate=False))
    names = matched(masks, there)
    for name, mask in masks.items():
        if name not in names:
            raise ValueError(f"model: {type(model).__name__} must have a parameter {name!r}, which is sparse here")
        if (shape := there[names[name]].shape) != mask.shape:
            raise ValueError(f"model: {name!r} has shape {list(shape)}; must be {list(mask.shape)}, as here")
    return {name: there[names[name]] for name in masks}


def zero_by(parameters: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> None:
    """Make zero what these masks say is."""
    zero_inactive((value, masks[name].to(value.device)) for name, value in parameters.items())

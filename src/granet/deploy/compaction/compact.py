"""The entry point: a smaller network with the same outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from granet.channels import couple, export, find_constants
from granet.checks import check_count
from granet.deploy.compaction.heads import Mask, attention_masks
from granet.deploy.compaction.plan import Plan, Planner
from granet.deploy.compaction.report import Compaction, compare
from granet.deploy.compaction.shrink import attributes_of, shrink
from granet.deploy.outputs import Outputs
from granet.names import unwrapped


@torch.no_grad()
def compact(
    model: nn.Module, example_input: Any, *, multiple_of: int = 1, tell: Callable[[Compaction], object] | None = print
) -> nn.Module:
    """A copy of ``model`` without the channels that make no difference: smaller layers, the same outputs in eval mode.

    Filters that are zero go, or whose output is a constant or is read by zeros only, and all weights that read them;
    attention heads and the widths of MLPs likewise. What they add goes into the next bias. The copy is a plain module
    of the model's own class that needs no granet, its names are the same, and it takes batches of any size if the model
    does. Channels that cannot be taken out stay, and the report says why.

    Args:
        example_input: what the model is exported with and compared on: a tensor, a tuple of positional arguments or a
            dict of named ones.
        multiple_of: widths are rounded up to a multiple of this, by channels that make no difference. In 16 bits GPUs
            are fast at multiples of 8.
        tell: is given a report of parameters, FLOPs and latency, before and after; None measures nothing.

    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    >>> _ = model[0].weight.data[:6].zero_()
    >>> compact(model, torch.zeros(1, 8), tell=None)
    Sequential(
      (0): Linear(in_features=8, out_features=10, bias=True)
      (1): ReLU()
      (2): Linear(in_features=10, out_features=4, bias=True)
    )
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model={type(model).__name__}: must be a torch.nn.Module")
    check_count("multiple_of", multiple_of)
    model = unwrapped(model)
    _check_values(model)
    exported = export(model, example_input)
    planner = Planner(exported, dict(model.named_modules()), find_constants(exported), couple(exported), multiple_of)
    small, plan = _Search(model, planner, Outputs(model, example_input), attention_masks(model, example_input)).best()
    if tell is not None:
        tell(compare(model, small, example_input, plan.staying))
    return small


@dataclass(frozen=True)
class _Search:
    """For the smallest model that runs and gives the same."""

    model: nn.Module
    planner: Planner
    outputs: Outputs
    masks: Mapping[str, Mask]

    def best(self) -> tuple[nn.Module, Plan]:
        """All that can be taken out goes; where that does not run, all but what passes the sizes of some modules."""
        plan = self.planner.plan()
        if (small := self._built(plan)) is not None:
            return small, plan
        frozen = set(self.planner.owners)
        plan = self.planner.plan(frozen)
        small = self._built(plan)
        if small is None:
            why = self.outputs.differ(shrink(self.model, plan, lambda _: True, self.masks))
            warnings.warn(f"granet: compact takes nothing out of {type(self.model).__name__}: {why}", stacklevel=4)
            return deepcopy(self.model), Plan({}, [], {}, plan.staying, 0)
        for owner in self.planner.owners:
            other = self.planner.plan(frozen - {owner})
            if other.gone > plan.gone and (found := self._built(other)) is not None:
                small, plan, frozen = found, other, frozen - {owner}
        return small, plan

    def _built(self, plan: Plan) -> nn.Module | None:
        """The smaller model, if it gives the same."""
        for accepts in _accepted(self.model, plan):
            try:
                small = shrink(self.model, plan, accepts, self.masks)
            except (RuntimeError, TypeError) as error:
                raise ValueError(f"model: {type(self.model).__name__} cannot be copied: {error}") from error
            if self.outputs.differ(small) is None:
                return small
        return None


def _accepted(model: nn.Module, plan: Plan) -> Iterator[Callable[[str], bool]]:
    """Which numbers that modules keep are changed with the sizes: all, none, one kind of them, or all but one."""
    names = {name for owner, sizes in plan.sizes.items() for name in attributes_of(model.get_submodule(owner), sizes)}
    yield lambda _: True
    if names:
        yield lambda _: False
    for name in sorted(names) if len(names) > 1 else ():
        yield name.__eq__
    for name in sorted(names) if len(names) > 2 else ():
        yield name.__ne__


def _check_values(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ValueError(f"model: {name!r} is on the meta device; give it its weights first")
        if not bool(torch.isfinite(parameter).all()):
            raise ValueError(f"model: {name!r} has values that are not finite; must be numbers")

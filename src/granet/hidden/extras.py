"""Parameters of a method's own, trained by the user's optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.optim import Adagrad, Optimizer

_OWN = {"params", "param_names"}
_EMPTIED = "granet_emptied"
"""A key that marks the empty groups left behind, also in their saved state."""


class ExtraParameters:
    """Adds one parameter for each weight to the optimizer, in groups modelled on the weights' groups.

    They are in the user's optimizer, not in one of our own, so that GradScaler unscales their gradients and checks them
    for overflow, and ``zero_grad`` and the optimizer's ``state_dict`` include them.

    Args:
        extras: one for each of ``weights``.
        held: options that stay as given here; all others follow the weight's group at every step.
    """

    def __init__(
        self, optimizer: Optimizer, weights: Sequence[nn.Parameter], extras: Sequence[nn.Parameter], **held: Any
    ) -> None:
        self._optimizer = optimizer
        self._held = held
        self._extras = list(extras)
        self._children: list[list[tuple[nn.Parameter, nn.Parameter]]] = []
        """For each group of extras, its weights and extras in pairs."""
        numbers = {parameter: n for n, group in enumerate(optimizer.param_groups) for parameter in group["params"]}
        homes = [numbers[weight] for weight in weights]
        if any("initial_lr" in optimizer.param_groups[home] for home in homes):
            raise ValueError(
                "optimizer: a learning-rate scheduler has its groups already; make the scheduler after sparsify(), "
                "because this method adds parameters of its own to the optimizer"
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("optimizer=LBFGS: must take a second group of parameters, for those that this method adds")
        try:
            for parent in sorted(set(homes)):
                pairs = zip(weights, extras, homes, strict=True)
                self._add(parent, [(weight, extra) for weight, extra, home in pairs if home == parent])
        except Exception as error:  # an unknown class may raise anything
            self.release()
            drop_emptied(optimizer)
            raise ValueError(
                f"optimizer={type(optimizer).__name__}: must take the parameters that this method adds ({error})"
            ) from error

    def _add(self, parent: int, pairs: list[tuple[nn.Parameter, nn.Parameter]]) -> None:
        extras = [extra for _, extra in pairs]
        named = [(f"granet.{parent}.{i}", extra) for i, extra in enumerate(extras)]
        names_given = "param_names" in self._optimizer.param_groups[parent]
        self._optimizer.add_param_group({"params": named if names_given else extras})
        if isinstance(self._optimizer, Adagrad):  # whose state, before torch 2.13, begins when it is made and only then
            self._optimizer.state.update(Adagrad(extras, **self._optimizer.defaults).state)
        self._children.append(pairs)
        self.follow()

    def follow(self) -> None:
        """Copy what a schedule did to the weights' groups.

        The groups are looked up each time: loading a state replaces them, and others may be added and removed.
        """
        groups = groups_of(self._optimizer)
        for pairs in self._children:
            held = [(groups[weight], groups[extra]) for weight, extra in pairs if weight in groups and extra in groups]
            if held:  # else the user has taken them out
                parent, child = held[0]
                options = {key: value for key, value in parent.items() if key not in _OWN}
                child.update(options | {key: value for key, value in self._held.items() if key in options})

    def rest_with_weights(self) -> None:
        """Before a step: an extra is not trained if its weight is not, since the user has taken it out.

        Only its gradient is dropped: it stays in its group, and is trained again if the weight comes back.
        """
        groups = groups_of(self._optimizer)
        for weight, extra in chain.from_iterable(self._children):
            if weight not in groups:
                extra.grad = None

    def release(self) -> None:
        """Stop training them. Their groups stay, empty: a learning-rate scheduler relies on their number."""
        groups = groups_of(self._optimizer)
        for extra in self._extras:
            if (group := groups.get(extra)) is not None:
                group.update([(name, []) for name in _OWN & group.keys()], **{_EMPTIED: True})
            self._optimizer.state.pop(extra, None)
        self._children.clear()


def drop_emptied(optimizer: Optimizer) -> None:
    """Remove the groups that :meth:`ExtraParameters.release` left; a user's own empty group stays."""
    groups = optimizer.param_groups
    groups[:] = [group for group in groups if _EMPTIED not in group]


def without_emptied(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any] | None:
    """The state of an optimizer without those groups, for one that has none; it may be saved with or without them."""
    if len(state["param_groups"]) <= len(optimizer.param_groups):
        return None
    return state | {"param_groups": [group for group in state["param_groups"] if _EMPTIED not in group]}


def groups_of(optimizer: Optimizer) -> dict[nn.Parameter, dict[str, Any]]:
    """Parameter to the group that holds it."""
    return {parameter: group for group in optimizer.param_groups for parameter in group["params"]}

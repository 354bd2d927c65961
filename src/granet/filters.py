"""What must be zero besides its weights for a dropped filter to output zero: its bias, and what a batch norm adds.

A batch norm that sees zeros outputs its bias, less its running mean when it evaluates. Both are held at zero for
dropped filters; the norm's factor then multiplies zero and may stay. Nothing is done further on: the next layer keeps
its weights for inputs that are zero.

A filter that outputs exactly zero into a ReLU gets no gradient, for the slope of a ReLU is 0 there: growth would not
see it, and once grown from zero it would never move. So as long as filters may grow back, their biases are left alone
and a dropped filter outputs a constant; from the last mask update on it outputs zero. Biases that are zero themselves,
as a batch norm's are at first, are no help: filters that a random start leaves out hardly ever come to life.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from granet.layers import SparseLayer, unwrapped
from granet.masking import zero_inactive
from granet.patterns import FILTERS


@dataclass(eq=False)
class Followers:
    """The vectors with an entry for each filter of a layer, to be zero where the filter is dropped."""

    biases: list[tuple[SparseLayer, SparseLayer]]
    """A layer, and a bias of its module or of the batch norm behind it, to be masked like a weight."""
    norms: list[tuple[SparseLayer, _BatchNorm]]

    @property
    def layers(self) -> list[SparseLayer]:
        return [bias for _, bias in self.biases]

    def follow(self) -> None:
        """Take over the masks of the filters."""
        for filters, bias in self.biases:
            bias.mask.copy_(_active(filters))
        zero_inactive(
            (norm.running_mean, _active(filters)) for filters, norm in self.norms if norm.running_mean is not None
        )

    def let_go(self) -> None:
        """Mask nothing, as long as filters may grow back."""
        for bias in self.layers:
            bias.mask.fill_(True)


def find_followers(model: nn.Module, layers: Sequence[SparseLayer]) -> Followers:
    """Biases by the module that owns the weight, batch norms by tracing the model; a warning if that fails."""
    model = unwrapped(model)
    modules = dict(model.named_modules())
    filters = {
        name: layer
        for layer in layers
        for name, module in modules.items()
        if getattr(module, "weight", None) is layer.weight
    }
    followers = Followers([], [])
    for name, layer in filters.items():
        _add_bias(followers, layer, modules[name], name)
    try:
        graph = fx.Tracer().trace(model)
    except Exception as error:  # a stranger's forward may raise anything
        reason = str(error).strip().splitlines() or [type(error).__name__]
        _warn(f"the model cannot be traced ({reason[0]}), so batch norms still add their bias to dropped filters")
        return followers
    calls = [node for node in graph.nodes if node.op == "call_module"]
    once = {node.target for node in calls if sum(other.target == node.target for other in calls) == 1}
    for node in calls:
        if (leader := filters.get(node.target)) is None:
            continue
        for user in node.users:
            norm = modules.get(str(user.target)) if user.op == "call_module" else None
            if isinstance(norm, _BatchNorm) and user.target in once:
                followers.norms.append((leader, norm))
                _add_bias(followers, leader, norm, str(user.target))
            if user.op == "output":
                _warn(
                    f"a dropped row of {leader.name!r} is an output of the model; exclude=({leader.name!r},) spares it"
                )
    return followers


def _add_bias(followers: Followers, filters: SparseLayer, module: nn.Module, name: str) -> None:
    if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
        followers.biases.append((filters, SparseLayer(f"{name}.bias", bias, filters.index, filters.seed)))


def _active(filters: SparseLayer) -> Tensor:
    return FILTERS.units(filters, filters.mask)


def _warn(message: str) -> None:
    warnings.warn(f"granet: pattern='filter': {message}", stacklevel=4)

"""Pruning in one call, without an optimizer: for methods that choose their masks once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from granet.channels import Followers, find_followers
from granet.masking import zero_inactive
from granet.methods import Method, list_methods, method_name
from granet.net import make_net
from granet.probe import Batch, Loss, Probe
from granet.sparsifier.checks import check_asked, check_values
from granet.sparsifier.first_masks import choose_masks
from granet.sparsifier.holders import check_free
from granet.weights import coverage_of, find_layers


def prune(
    model: nn.Module,
    method: Method,
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    also: Sequence[str] = (),
    floor: int = 1,
    seed: int = 0,
    batches: Iterable[Batch] | None = None,
    loss: Loss | None = None,
    trained: Mapping[str, Any] | None = None,
    example: Any = None,
) -> dict[str, Tensor]:
    """Prune ``model`` in place, once, and return the masks: name to bool tensor, True where the weight is active.

    For methods whose masks stay as they are first chosen: those that prune a finished model (``one-shot``, ``wanda``)
    and those that prune before training (``snip``, ``synflow``). Frozen weights are pruned like others. The masks are
    the ones that :func:`granet.sparsify` would begin with, and :func:`granet.save` and :func:`granet.flops` take them.

    Under ``pattern="filter"`` there are masks of all that is zero now: biases of dropped filters and weights that read
    them too.

    The arguments are those of :func:`granet.sparsify`. Without ``trained`` the model as it stands is the finished run
    that is pruned; only ``lth`` needs one.

    >>> import torch, granet
    >>> model = torch.nn.Linear(8, 5)
    >>> masks = granet.prune(model, granet.OneShot(sparsity=0.75))
    >>> int(masks["weight"].sum()), int(model.weight.count_nonzero())
    (10, 10)
    """
    seed, floor = check_asked(model, method, seed, floor)
    if not _chooses_once(type(method)):
        once = ", ".join(info.name for info in list_methods() if _chooses_once(info.cls))
        raise ValueError(
            f"method={method!r}: must choose its masks once, as {once} do; those of {method_name(method)} change while "
            "a model is trained with granet.sparsify"
        )
    layers = find_layers(model, include, exclude, seed, also=also, take_frozen=True)
    check_values(layers)
    check_free(layers)
    if surprise := coverage_of(model, layers, include, exclude).surprise:
        warnings.warn(f"granet: {surprise}", stacklevel=2)
    followers = Followers(layers)
    if method.pattern == "filter":  # nothing trains, so all can be held
        followers = find_followers(model, layers, set(model.parameters()), example)
    net = make_net(layers, floor, method.pattern, method.sparsity)
    choose_masks(method, net, Probe(method_name(method), model, layers, batches, loss, trained))
    followers.hold("readers")
    zero_inactive((layer.weight, layer.mask) for layer in followers.held)
    followers.zero_means()
    return {layer.name: layer.mask for layer in followers.held}


def _chooses_once(cls: type[Method]) -> bool:
    """Whether its first masks are its last."""
    return cls.updates is Method.updates and not cls.hidden

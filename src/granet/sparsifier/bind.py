"""The entry point: check a model, an optimizer and a method, and bind them together."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from granet.channels import Followers, find_followers
from granet.clock import Clock
from granet.hidden import groups_of
from granet.methods import Method, method_name
from granet.probe import Batch, Loss, Probe
from granet.sparsifier.checks import check_asked, check_values
from granet.sparsifier.sparsifier import Sparsifier
from granet.weights import coverage_of, find_layers


def sparsify(
    model: nn.Module,
    optimizer: Optimizer,
    method: Method,
    *,
    total_steps: int | None = None,
    steps_per_epoch: int | None = None,
    seed: int = 0,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    also: Sequence[str] = (),
    floor: int = 1,
    batches: Iterable[Batch] | None = None,
    loss: Loss | None = None,
    trained: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    example: Any = None,
) -> Sparsifier:
    """Train ``model`` sparsely with ``method`` from now on; the training loop stays as it is.

    Args:
        total_steps: optimizer steps of the whole training, for methods whose masks change.
        steps_per_epoch: optimizer steps of an epoch, for times given in epochs.
        seed: for everything random in the masks.
        include: globs over parameter names; by default every convolution and linear weight is sparsified, whatever
            class holds it (:func:`granet.register_weights` adds classes), and nothing that is tied to an embedding.
        exclude: globs over parameter names to leave dense.
        also: globs over the names of parameters to sparsify besides these, whatever they are.
        floor: the least number of weights that every layer keeps; 0 allows a layer to be emptied.
        batches: (inputs, targets) pairs for methods that look at data before the first step; the others never touch
            them. Inputs in a tuple or list are several arguments of the model, in a dict named ones. On several ranks,
            give all the same batches.
        loss: ``loss(outputs, targets)``, one number, for the same methods.
        trained: the state_dict of a finished first run, for methods that retrain. Without it the model is that run, but
            for ``lth``, which begins with the model's values under the masks of the run.
        state: :meth:`Sparsifier.state_dict` of a training to go on with. Its masks are taken instead of first ones, and
            nothing is written into weights, so that model and optimizer may be loaded before or after this.
        example: an input, for whole filters of a model that cannot be traced without: several arguments in a tuple,
            named ones in a dict. The model is exported with it.
    """
    seed, floor = check_asked(model, method, seed, floor)
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer={type(optimizer).__name__}: must be a torch.optim.Optimizer")
    if not getattr(type(optimizer).step, "hooked", False):  # torch sees to it in Optimizer.__init__
        raise ValueError(
            f"optimizer={type(optimizer).__name__}: its step() calls no hooks, so nothing would keep weights at zero; "
            "if it wraps an optimizer, give that one"
        )
    layers = find_layers(model, include, exclude, seed, also=also)
    check_values(layers)
    clock = Clock(0, total_steps, steps_per_epoch)
    followers = Followers(layers)
    if method.pattern == "filter":
        followers = find_followers(model, layers, groups_of(optimizer), example)
    probe = Probe(method_name(method), model, layers, batches, loss, trained)
    coverage = coverage_of(model, layers, include, exclude)
    sparsifier = Sparsifier(layers, optimizer, method, clock, floor, probe, followers, state, coverage)
    if coverage.surprise:
        warnings.warn(f"granet: {coverage.surprise}", stacklevel=2)
    return sparsifier

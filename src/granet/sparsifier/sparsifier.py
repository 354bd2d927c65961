"""A model, an optimizer and a method bound together: what happens around each step, and what can be asked between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from granet.account import Summary, ZeroCheck, check_zeros, named_alike, zero_by
from granet.channels import Followers
from granet.clock import Clock
from granet.hidden import Hidden, drop_emptied
from granet.methods import Method
from granet.net import make_net
from granet.probe import Probe
from granet.sparsifier.checks import check_held, warn_of_zeros
from granet.sparsifier.first_masks import choose_masks
from granet.sparsifier.history import UpdateRecord
from granet.sparsifier.holders import check_free, hold, let_go
from granet.sparsifier.mask_updates import MaskUpdates
from granet.sparsifier.memory import memory_layout
from granet.sparsifier.state import SavedState, read_state, write_state
from granet.sparsifier.step_hooks import StepHooks
from granet.sparsifier.steps import Listener, Steps
from granet.sparsifier.zeros import Zeros
from granet.weights import Coverage, SparseLayer, count_active


class Sparsifier:
    """Keeps a model sparse while an ordinary optimizer trains it.

    Before each optimizer step the gradients are masked, so inactive weights and their optimizer state are zero and stay
    zero. After it the clock ticks, and on an update step the method's new masks are applied to weights and state, once.

    Where a method trains something behind the weights (``hidden``), that is swapped in for the duration of the step
    instead, and :meth:`finish` ends it.
    """

    def __init__(
        self,
        layers: Sequence[SparseLayer],
        optimizer: Optimizer,
        method: Method,
        clock: Clock,
        floor: int,
        probe: Probe,
        followers: Followers,
        state: Mapping[str, Any] | None,
        coverage: Coverage,
    ) -> None:
        check_held(optimizer, layers)
        check_free(layers)
        self.method = method
        self.coverage = coverage
        """The share of the model's parameters that is sparse weights, and the large matrices outside."""
        self._optimizer = optimizer
        self._layers = {layer.name: layer for layer in layers}
        self._net = make_net(layers, floor, method.pattern, method.sparsity)
        self._updates = MaskUpdates(method, self._net, optimizer, clock)

        # The masks: the method chooses the first ones, or a state has them.
        if state is None:
            saved = None
            choose_masks(method, self._net, probe)
            warn_of_zeros(layers, self._net.units)
        else:
            saved = read_state(state, method, clock, self._net, hidden=None, begun=False)
        self._updates.memory_layout = memory_layout(self._net)

        # Weights and optimizer state follow them.
        self._zeros = Zeros(followers, optimizer)
        hidden = None if saved and saved.hidden is None else method.hide(probe.model, layers, optimizer)
        if hidden is not None and saved is not None:
            _check_hidden(hidden, saved, optimizer)
        self._steps = Steps(method, self._net, self._updates, self._zeros, hidden)
        if saved is None:
            self._steps.follow()
        else:
            self._steps.take(saved)
        self._hooks: StepHooks | None = self._hook()

    # What users read.

    @property
    def layers(self) -> dict[str, SparseLayer]:
        """Name to a view of each sparse weight: ``.mask``, ``.active``, ``.numel``, ``.sparsity``."""
        return dict(self._layers)

    @property
    def masks(self) -> dict[str, Tensor]:
        """Name to mask: bool, True where the weight is active."""
        return {name: layer.mask for name, layer in self._layers.items()}

    @property
    def in_use(self) -> dict[str, Tensor]:
        """Name to mask of all that is held at zero: the same as :attr:`masks`, except under ``pattern="filter"``.

        There a weight is in use only if it is active and reads a channel that is not zero for good, and biases have
        masks too. With these masks files and FLOPs are smaller; sparsity counts only filters.
        """
        return {held.name: held.mask for held in self._zeros.layers}

    @property
    def active(self) -> dict[str, int]:
        """Name to the number of active weights, counted now."""
        return count_active(self.masks)

    @property
    def sparsity(self) -> float:
        """Zeroed weights over all sparsified weights, counted now; for ``vd``, those that :meth:`finish` would zero."""
        return (self._net.numel - sum(self.active.values())) / self._net.numel

    @property
    def target_sparsity(self) -> float:
        """What the method asked for at the last update; if it asks for none, the present sparsity."""
        return self._updates.target if self.method.has_target else self.sparsity

    @property
    def step(self) -> int:
        """Optimizer steps taken so far."""
        return self._updates.clock.step

    @property
    def updates(self) -> range:
        """The optimizer steps after which the masks are updated; empty once :meth:`finish` ended a hidden training."""
        return self._updates.steps

    @property
    def history(self) -> list[UpdateRecord]:
        """One record for each update so far."""
        return self._updates.history.records()

    @property
    def hidden(self) -> Hidden | None:
        """What is trained behind the weights now, if anything is."""
        return self._steps.hidden

    # What is told of it.

    def __repr__(self) -> str:
        return str(self._summary())

    def _repr_html_(self) -> str:
        return self._summary().html()

    def table(self) -> list[dict[str, Any]]:
        """A row for each sparse weight: name, shape, numel, active, sparsity; ``pandas.DataFrame`` takes it."""
        return list(self._summary().rows)

    def plot(self, axes: Any = None) -> Any:
        """Draw the density of each layer, with matplotlib, and the sparsity after each update; returns the axes."""
        return self._summary().plot(axes)

    def _summary(self) -> Summary:
        active = self.active
        rows = [
            {"name": name, "shape": tuple(layer.weight.shape), "numel": layer.numel, "active": active[name]}
            | {"sparsity": (layer.numel - active[name]) / layer.numel}
            for name, layer in self._layers.items()
        ]
        return Summary(
            method=repr(self.method),
            step=self.step,
            total_steps=self._updates.clock.total_steps,
            sparsity=self.sparsity,
            target=self.target_sparsity,
            final=self.method.sparsity if self.method.has_target else None,
            coverage=self.coverage,
            rows=rows,
            updates=[(record.step, record.achieved) for record in self.history],
        )

    def check(self, model: nn.Module | None = None) -> ZeroCheck:
        """Count the zeros that are really there, in this model or another one with the same parameters.

        The result is false if a weight is not zero though its mask says so, as in an average of weights (EMA, SWA), in
        a model that another optimizer trained on or whose weights were loaded from another moment.
        """
        masks = self.in_use
        own = {held.name: held.weight for held in self._zeros.layers}
        return check_zeros(own if model is None else named_alike(model, masks), masks, self._layers)

    def apply_to(self, model: nn.Module) -> None:
        """Zero the inactive weights of another model with the same parameters, such as an average of this one's."""
        zero_by(named_alike(model, self.in_use), self.in_use)

    def _warn_of_strays(self) -> None:
        if self._steps.in_line and not (found := self.check()):
            self._updates.say_once(list(found.stray), f"{found}; sparsifier.apply_to(model) makes them zero")

    # In training.

    def mask_gradients(self) -> None:
        """Zero the gradients of inactive weights.

        ``optimizer.step()`` does this by itself. Call it yourself only to read or clip the gradients as the optimizer
        will see them: once a step, when all gradients of the step are there. Growth still sees the dense gradients.
        """
        self._steps.mask_gradients()

    def on_change(self, listener: Listener) -> None:
        """Call ``listener(change)`` after each mask update, and at the end, once weights and optimizer state follow."""
        self._steps.listeners.append(listener)

    # State, copies, the end.

    def state_dict(self) -> dict[str, Any]:
        """Masks (packed bits), counters, seed, history and the method's fields: tensors and plain values only.

        Random masks are a function of seed, layer and step, so these are the whole state of the random numbers. Only
        the noise of ``vd`` comes from torch's generator, like dropout's: to continue bit for bit, save its state too.
        """
        self._warn_of_strays()
        updates = self._updates
        return write_state(self.method, updates.clock, self.target_sparsity, self._net, updates.history, self.hidden)

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken; after ``sparsify()``, load the model, this and the optimizer.

        Raises ValueError, and changes nothing, if the state is of another model or method, of the same method with
        other fields, or (while masks are still to change) of a training of another length: the result would be neither
        the one training nor the other.

        The optimizer comes last because a state of ``str`` or ``vd`` after :meth:`finish` removes the parameters that
        they had added to it.
        """
        saved = read_state(state, self.method, self._updates.clock, self._net, self.hidden)
        differ = any(not torch.equal(saved.masks[name].to(mask.device), mask) for name, mask in self.masks.items())
        self._steps.take(saved)
        if differ:
            self._steps.write_what_is_due()

    def finish(self) -> None:
        """End the training of what is hidden: plain weights with exact zeros remain, under masks that are final.

        Call it when training is over. Does nothing for methods that hide nothing, or when called again. Training may go
        on afterwards; it then fine-tunes the weights that are left. The parameters that ``str`` and ``vd`` added to the
        optimizer are taken out of it; their groups stay, empty, until :meth:`remove`, since schedulers rely on the
        number of groups.
        """
        self._steps.write_what_is_due()
        self._warn_of_strays()
        self._updates.warn_of_early_end()
        self._steps.end_hidden()

    def __enter__(self) -> Sparsifier:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """:meth:`remove`; after an exception only unhook, since training did not come to its end."""
        if error is None:
            self.remove()
        else:
            self._unhook()

    def remove(self) -> None:
        """Unhook from the optimizer; the weights stay sparse. Calls :meth:`finish` first."""
        try:
            self.finish()
        finally:
            self._unhook()

    def _unhook(self) -> None:
        self._steps.drop_hidden()  # also where it could not be finished
        drop_emptied(self._optimizer)
        if self._hooks is not None:
            self._zeros.write()  # other weights may have been loaded
            self._updates.forget_gradients()
            self._hooks.remove()
            self._hooks = None
            let_go(self._layers.values())

    def _hook(self) -> StepHooks:
        hold(self._layers.values(), self)
        return StepHooks(self._optimizer, self._steps)

    def __getstate__(self) -> dict[str, Any]:
        self._updates.history.records()  # nothing may be on its way from the device
        return self.__dict__ | {"_hooks": self._hooks is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy (made together with its model and optimizer) hooks itself to the copied optimizer."""
        self.__dict__.update(state)
        self._hooks = self._hook() if state["_hooks"] else None


def _check_hidden(hidden: Hidden, saved: SavedState, optimizer: Optimizer) -> None:
    try:
        hidden.check(saved.hidden)
    except ValueError:
        hidden.finish()
        drop_emptied(optimizer)
        raise


def steps_of(sparsifier: Sparsifier) -> Steps:
    """For a trainer that replays steps rather than calling ``optimizer.step()``."""
    return sparsifier._steps

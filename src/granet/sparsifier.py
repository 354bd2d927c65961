"""Binds a method to a model and an optimizer: the hooks around a step, the masks, and their state."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from granet.clock import Clock
from granet.filters import Followers, find_followers
from granet.gradient_memory import take_in
from granet.history import History, UpdateRecord
from granet.layers import SparseLayer, find_layers
from granet.masking import all_finite
from granet.methods import Method, may_regrow, method_name
from granet.pattern_net import make_net
from granet.probe import Batch, Loss, Probe
from granet.readings import copy_gradients, forget_gradients, read_rates, refer_to_gradients, with_gradient
from granet.sparsifier_checks import check_floor, check_held, check_optimizer
from granet.sparsifier_state import read_state, write_state
from granet.step_hooks import StepHooks, hooked_owners
from granet.trained import take_over
from granet.zeros import Zeros


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
    floor: int = 1,
    batches: Iterable[Batch] | None = None,
    loss: Loss | None = None,
    trained: Mapping[str, Any] | None = None,
) -> Sparsifier:
    """Train ``model`` sparsely with ``method`` from now on; the training loop stays as it is.

    Args:
        total_steps: optimizer steps of the whole training, for methods whose masks change.
        steps_per_epoch: optimizer steps of an epoch, for times given in epochs.
        seed: of everything random in the masks.
        include: globs over parameter names; by default every convolution and linear weight is sparsified.
        exclude: globs over parameter names to leave dense.
        floor: weights that every layer keeps at least; 0 allows a layer to be emptied.
        batches: (inputs, targets) pairs for methods that look at data before the first step; the others never touch
            them. On several ranks, give all the same ones.
        loss: ``loss(outputs, targets)``, one number, for the same methods.
        trained: the state_dict of a finished first run, for methods that retrain.
    """
    if not isinstance(method, Method):
        raise ValueError(f"method={method!r}: must be a method, such as granet.GraNet(sparsity=0.9)")
    if not isinstance(seed, int):
        raise ValueError(f"seed={seed!r}: must be a whole number")
    layers = find_layers(model, include, exclude, seed)
    clock = Clock(0, total_steps, steps_per_epoch)
    followers = find_followers(model, layers) if method.pattern == "filter" else None
    probe = Probe(method_name(method), model, layers, batches, loss, trained)
    return Sparsifier(layers, optimizer, method, clock, floor, probe, followers)


class Sparsifier:
    """Keeps a model sparse while an ordinary optimizer trains it.

    Before each optimizer step the gradients are masked, so inactive weights and their optimizer state are zero and stay
    zero. After it the clock ticks, and on an update step the method's new masks are applied to weights and state, once.

    Where a method trains something behind the weights (``hidden``), it is swapped in for the length of the step
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
        followers: Followers | None = None,
    ) -> None:
        self.method = method
        self._clock = clock
        self._updates = method.updates(clock)
        self._layers = {layer.name: layer for layer in layers}
        check_floor(floor, layers, method.sparsity)
        check_optimizer(optimizer)
        check_held(optimizer, layers, _sparsified_through(optimizer))
        self._net = make_net(layers, floor, method.pattern, method.sparsity)
        self._optimizer = optimizer
        self._zeros = Zeros(layers, followers, optimizer)
        self._memory = method.gradient_memory
        if self._memory is not None:
            self._memory.begin(layers, self._updates)
        self._history = History(self._net.numel)
        self._target = method.target(clock)
        self._said: set[str] = set()

        self._net.open(draw=0, movable=layers, accept=torch.tensor(True, device=self._net.device))
        self._net.probe = probe
        method.begin(self._net)
        self._net.commit()
        del self._net.probe
        if self._net.start is not None:
            take_over(probe.model, self._net.start)
            self._net.start = None
        if not method.has_target:
            self._target = self.sparsity
        self._hidden = method.hide(probe.model, layers, optimizer)
        self._apply_masks()
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
    def sparsity(self) -> float:
        """Zeroed weights over all sparsified weights, counted now; for ``vd``, those that :meth:`finish` would zero."""
        active = torch.stack([layer.mask.count_nonzero().to(self._net.device) for layer in self._net.layers])
        return (self._net.numel - int(active.sum())) / self._net.numel

    @property
    def target_sparsity(self) -> float:
        """What the method asked for at the last update."""
        return self._target

    @property
    def step(self) -> int:
        """Optimizer steps taken so far."""
        return self._clock.step

    @property
    def history(self) -> list[UpdateRecord]:
        """One record for each update so far."""
        return self._history.records()

    # The training step.

    def mask_gradients(self) -> None:
        """Zero the gradients of inactive weights.

        ``optimizer.step()`` does this by itself. Call it before that only to read or clip the gradients as the
        optimizer will see them; growth still sees the dense gradients.
        """
        if self._update_is_next or self._gradient_is_wanted:
            keep = copy_gradients if self.method.needs_gradient else refer_to_gradients
            keep(self._net.layers)
        if self._hidden is not None:
            self._hidden.pull_back()
        else:
            self._zeros.mask_gradients()

    def advance(self) -> None:
        """Count one optimizer step and, if it is time, update the masks.

        ``optimizer.step()`` does this by itself. Call it only where the step is replayed rather than called, as from a
        CUDA graph; growth then reads what ``.grad`` holds, unless :meth:`mask_gradients` kept it before.
        """
        if self._hidden is not None and not self._hidden.leave():
            raise ValueError(
                f"method={method_name(self.method)!r}: needs optimizer.step(), its step cannot be replayed"
            )
        due = self._update_is_next
        if self._memory is not None and self._gradient_is_wanted:
            take_in(self._memory, self._net.layers, getattr(self._optimizer, "grad_scale", None))
            if not due:
                forget_gradients(self._net.layers)
        self._clock = Clock(self._clock.step + 1, self._clock.total_steps, self._clock.steps_per_epoch)
        self._zeros.after_step(self._history)
        if due:
            self._update()
        for record in self._history.arrived():
            if record.skipped:
                self._say_once(
                    "finite", f"step {record.step}: a gradient is not finite, so this mask update is skipped"
                )

    @property
    def _update_is_next(self) -> bool:
        return self._clock.step + 1 in self._updates

    @property
    def _gradient_is_wanted(self) -> bool:
        return self._memory is not None and self._memory.wants(self._clock.step + 1, self._updates)

    def _prepare(self) -> bool:
        self._show()  # a step that ended in an exception may have left what is hidden in the weights
        self.mask_gradients()
        if self._hidden is not None:
            self._hidden.enter(self._clock)
        return self.method.step_on_update or not self._update_is_next

    def _show(self) -> None:
        """The weights are to be those that the model is evaluated with."""
        if self._hidden is not None:
            self._hidden.leave()

    def _give_up(self) -> None:
        self._show()
        forget_gradients(self._net.layers)

    # The mask update.

    def _update(self) -> None:
        movable = with_gradient(self._net.layers)
        for layer in self._net.layers:
            if layer.gradient is None:
                self._say_once(layer.name, f"{layer.name}: no gradient at a mask update; its mask is left as it is")
        if movable:
            self._target = self.method.target(self._clock)
            accept = all_finite((layer.gradient for layer in movable if layer.gradient is not None), self._net.device)
            if self.method.needs_rate:
                read_rates(self._optimizer, self._net.layers)
            self._net.open(self._clock.step, movable, accept)
            self.method.update(self._net, self._clock)
            self._net.commit()
            self._apply_masks()
            if self.method.logged(self._clock):
                self._history.add(
                    self._clock.step, self._target, self._net.pruned, self._net.regrown, accept, self._net.active,
                    self._net.ever_active,
                )  # fmt: skip
        if self._memory is not None:
            self._memory.updated(self._net.layers)
        forget_gradients(self._net.layers)

    def _apply_masks(self) -> None:
        """Weights and optimizer state become zero where the masks now say inactive."""
        if self._hidden is not None:
            self._hidden.show()  # what is hidden, and its optimizer state, stays
        else:
            last = self._updates[-1] if self._updates and may_regrow(self.method) else 0
            self._zeros.apply_masks(self._target, self._clock.step < last)

    def _say_once(self, topic: str, message: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            warnings.warn(f"granet: {message}", stacklevel=2)

    # State, copies, the end.

    def state_dict(self) -> dict[str, Any]:
        """Masks (packed bits), counters, seed and history: tensors and plain values only.

        Random masks are a function of seed, layer and step, so these are the whole state of the random numbers.
        """
        return write_state(
            method_name(self.method), self._clock.step, self._target, self._net, self._history, self._hidden
        )

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken; load the model and the optimizer first."""
        saved = read_state(state, method_name(self.method), self._net, self._hidden)
        for tensor, value in saved.memory:
            tensor.copy_(value)
        for name, layer in self._layers.items():
            layer.mask.copy_(saved.masks[name])
            layer.seed = saved.seed
            layer.gradient = None
        self._net.active.copy_(torch.tensor([int(mask.sum()) for mask in saved.masks.values()]))
        self._clock = Clock(saved.step, self._clock.total_steps, self._clock.steps_per_epoch)
        self._target = saved.target
        self._history.load(saved.history)
        if self._hidden is not None and saved.hidden is not None:
            self._hidden.load(saved.hidden)
        else:
            self._drop_hidden()  # nothing is hidden after finish()
            self._apply_masks()

    @property
    def hidden(self) -> bool:
        """Whether something is trained behind the weights now, so that ``optimizer.step()`` must be called."""
        return self._hidden is not None

    def finish(self) -> None:
        """End the training of what is hidden: plain weights with exact zeros remain, under masks that are final.

        Call it when training is over. Does nothing for methods that hide nothing, and nothing when called again.
        Training may go on after it; it then fine-tunes the weights that are left.
        """
        if self._hidden is not None:
            self._show()
            self._net.open(self._clock.step, self._net.layers, torch.tensor(True, device=self._net.device))
            self._net.recount()
            self.method.finish(self._net)
            self._net.commit()
            self._drop_hidden()
            self._apply_masks()
            self._zeros.look_after_next_step()  # whatever the target was, there are zeros to keep from now on

    def _drop_hidden(self) -> None:
        if self._hidden is not None:
            self._hidden.finish()
            self._hidden = None
            self._updates = range(0)

    def remove(self) -> None:
        """Unhook from the optimizer; the weights stay sparse. What is hidden is finished first."""
        try:
            self.finish()
        finally:
            if self._hooks is not None:
                self._hooks.remove()
                self._hooks = None

    def _hook(self) -> StepHooks:
        return StepHooks(
            self._optimizer, self._prepare, taken=self.advance, given_up=self._give_up, evaluate=self._show
        )

    def __getstate__(self) -> dict[str, Any]:
        self._history.records()  # nothing may be on its way from the device
        return self.__dict__ | {"_hooks": self._hooks is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy (made together with its model and optimizer) hooks itself to the copied optimizer."""
        self.__dict__.update(state)
        self._hooks = self._hook() if state["_hooks"] else None


def _sparsified_through(optimizer: Optimizer) -> list[SparseLayer]:
    """The layers of all sparsifiers that are hooked to this optimizer."""
    owners = (owner for owner in hooked_owners(optimizer) if isinstance(owner, Sparsifier))
    return [layer for owner in owners for layer in owner.layers.values()]

"""Binds a method to a model and an optimizer: the hooks around a step, the masks, and their state."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from granet.clock import Clock
from granet.distributions import kept
from granet.filters import Followers, find_followers
from granet.gradient_memory import take_in
from granet.history import History, UpdateRecord
from granet.layers import SparseLayer, find_layers
from granet.masking import all_finite, zero_inactive
from granet.memory import check_memory, memory_state
from granet.methods import Method, may_regrow, method_name
from granet.optimizer_state import OptimizerState
from granet.packing import pack_bits, unpack_bits
from granet.pattern_net import make_net
from granet.probe import Batch, Loss, Probe
from granet.step_hooks import StepHooks, hooked_owners
from granet.trained import take_over


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
        self._followers = followers
        self._masked = [*layers, *(followers.layers if followers else ())]
        _check_floor(floor, layers, method.sparsity)
        _check_held(optimizer, layers)
        self._net = make_net(layers, floor, method.pattern, method.sparsity)
        self._optimizer = optimizer
        self._state = OptimizerState(optimizer)
        self._memory = method.gradient_memory
        if self._memory is not None:
            self._memory.begin(layers, self._updates)
        self._history = History(self._net.numel)
        self._target = method.target(clock)
        self._said: set[str] = set()
        self._always_mask = False
        self._leak_check_due = False
        self._leak_checks_left = 2

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
    def updates(self) -> range:
        """The optimizer steps after which the masks are updated; none any more after :meth:`finish`."""
        return self._updates

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
            self._keep_gradients()
        if self._hidden is not None:
            self._hidden.pull_back()
            return
        zero_inactive((layer.weight.grad, layer.mask) for layer in self._masked if layer.weight.grad is not None)

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
                self._forget_gradients()
        self._clock = Clock(self._clock.step + 1, self._clock.total_steps, self._clock.steps_per_epoch)
        if self._always_mask or self._leak_check_due:
            self._mask_leaks()
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
        self._forget_gradients()

    # The mask update.

    def _keep_gradients(self) -> None:
        """Hold on to the gradients until the update: dense copies for growth, else just what the optimizer sees."""
        new = []
        for layer in self._layers.values():
            grad = layer.weight.grad
            if grad is None:
                layer.gradient = None
            elif not self.method.needs_gradient:
                layer.gradient = grad.detach()
            elif layer.gradient is None or layer.gradient_source is None or layer.gradient_source() is not grad:
                new.append((layer, grad))
            else:
                # The same tensor before the same step. Masked already, it has nothing to add; with a new backward pass
                # in it (the step before was given up), it replaces what was kept.
                fresh = ((grad != 0) & ~layer.mask).any() | layer.mask.all()
                layer.gradient = torch.where(fresh, grad.detach(), layer.gradient)
        if new:
            copies = torch._foreach_mul([grad.detach() for _, grad in new], 1)
            for (layer, grad), copy in zip(new, copies, strict=True):
                layer.gradient, layer.gradient_source = copy, weakref.ref(grad)

    def _update(self) -> None:
        movable, gradients = [], []
        for layer in self._layers.values():
            if layer.gradient is None and layer.weight.grad is not None:
                layer.gradient = layer.weight.grad.detach()
            if layer.gradient is None:
                self._say_once(layer.name, f"{layer.name}: no gradient at a mask update; its mask is left as it is")
            else:
                movable.append(layer)
                gradients.append(layer.gradient)
        if movable:
            self._target = self.method.target(self._clock)
            accept = all_finite(gradients, self._net.device)
            if self.method.needs_rate:
                self._read_rates()
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
        self._forget_gradients()

    def _read_rates(self) -> None:
        for group in self._optimizer.param_groups:
            held = {id(parameter) for parameter in group["params"]}
            for layer in self._layers.values():
                if id(layer.weight) in held:
                    layer.rate = group["lr"]

    def _forget_gradients(self) -> None:
        for layer in self._layers.values():
            layer.gradient = layer.gradient_source = None

    def _apply_masks(self) -> None:
        """Weights and optimizer state become zero where the masks now say inactive."""
        if self._hidden is not None:
            self._hidden.show()  # what is hidden, and its optimizer state, stays
            return
        if self._followers is not None:
            last = self._updates[-1] if self._updates and may_regrow(self.method) else 0
            self._followers.follow() if self._clock.step >= last else self._followers.let_go()
        zero_inactive((layer.weight, layer.mask) for layer in self._masked)
        self._state.clear_inactive(self._masked)
        self._leak_check_due = self._target > 0 and self._leak_checks_left > 0

    def _mask_leaks(self) -> None:
        """Some optimizers move weights whose gradient is zero (Muon, L-BFGS): notice it, and mask their weights too.

        The host waits for the device here, so this is looked at only after the first step with masks and after the
        first one with changed masks.
        """
        if self._leak_check_due:
            self._leak_check_due = False
            history = self._history.records()
            self._leak_checks_left -= not (history and history[-1].skipped)  # no mask changed there
            moved = ((layer.weight != 0).greater(layer.mask).any() for layer in self._masked)
            self._always_mask = self._always_mask or any(map(bool, moved))
        if self._always_mask:
            zero_inactive((layer.weight, layer.mask) for layer in self._masked)
            self._state.clear_inactive(self._masked)

    def _say_once(self, topic: str, message: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            warnings.warn(f"granet: {message}", stacklevel=2)

    # State, copies, the end.

    def state_dict(self) -> dict[str, Any]:
        """Masks (packed bits), counters, seed and history: tensors and plain values only.

        Random masks are a function of seed, layer and step, so these are the whole state of the random numbers.
        """
        first = next(iter(self._layers.values()))
        return {
            "method": method_name(self.method),
            "step": self._clock.step,
            "seed": first.seed,
            "target_sparsity": self._target,
            "shapes": {name: list(layer.weight.shape) for name, layer in self._layers.items()},
            "masks": {name: pack_bits(layer.mask) for name, layer in self._layers.items()},
            "memory": memory_state(self._net),
            "history": self._history.state(),
        } | ({"hidden": self._hidden.state()} if self._hidden is not None else {})

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken; load the model and the optimizer first."""
        masks, history = self._check_state(state)
        for tensor, value in check_memory(self._net, state.get("memory", {})):
            tensor.copy_(value)
        for name, layer in self._layers.items():
            layer.mask.copy_(masks[name])
            layer.seed = state["seed"]
            layer.gradient = None
        self._net.active.copy_(torch.tensor([int(masks[name].sum()) for name in self._layers]))
        self._clock = Clock(state["step"], self._clock.total_steps, self._clock.steps_per_epoch)
        self._target = state["target_sparsity"]
        self._history.load(history)
        if self._hidden is not None and "hidden" in state:
            self._hidden.load(state["hidden"])
        else:
            self._drop_hidden()  # nothing is hidden after finish()
            self._apply_masks()

    def _check_state(self, state: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[UpdateRecord]]:
        """The masks and the history in a state dict; ValueError if it is not one of this model and method."""
        wanted = {"method", "step", "seed", "target_sparsity", "shapes", "masks", "history"}
        missing = wanted - set(state) if isinstance(state, Mapping) else wanted
        if missing:
            raise ValueError(f"state: not a sparsifier's state_dict, it has no {', '.join(sorted(missing))}")
        if state["method"] != method_name(self.method):
            raise ValueError(f"state['method']={state['method']!r}: must be {method_name(self.method)!r}, as here")
        if not isinstance(state["step"], int) or state["step"] < 0:
            raise ValueError(f"state['step']={state['step']!r}: must be a number of optimizer steps, 0 or more")
        if "hidden" in state:
            if self._hidden is None:
                raise ValueError("state['hidden']: is of a training that goes on, but this one is finished")
            self._hidden.check(state["hidden"])
        shapes = {name: list(layer.weight.shape) for name, layer in self._layers.items()}
        for name in [*shapes, *state["shapes"]]:
            here, there = shapes.get(name), state["shapes"].get(name)
            if here != there:
                raise ValueError(f"state['shapes'][{name!r}]={there}: is of another model, this one has {here}")
        masks = {}
        for name, layer in self._layers.items():
            try:
                masks[name] = unpack_bits(state["masks"][name], layer.weight.shape)
                self._net.check_mask(layer, masks[name])
            except (KeyError, ValueError) as error:
                raise ValueError(
                    f"state['masks'][{name!r}]: must be the packed mask of that weight ({error})"
                ) from error
        try:
            return masks, [UpdateRecord.from_dict(record) for record in state["history"]]
        except (TypeError, KeyError) as error:
            raise ValueError(f"state['history']: must be a list of update records ({error})") from error

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
            self._leak_check_due = True  # whatever the target was, there are zeros to keep from now on

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


def _check_floor(floor: int, layers: Sequence[SparseLayer], sparsity: float) -> None:
    if not isinstance(floor, int) or floor < 0:
        raise ValueError(f"floor={floor!r}: must be a whole number of weights, 0 or more")
    keep = kept(sum(layer.numel for layer in layers), sparsity)
    least = sum(min(floor, layer.numel) for layer in layers)
    if keep < least:
        raise ValueError(
            f"sparsity={sparsity!r}: leaves {keep} weights, but floor={floor} asks for at least {least} in "
            f"{len(layers)} layers"
        )


def _check_held(optimizer: Optimizer, layers: Sequence[SparseLayer]) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer={type(optimizer).__name__}: must be a torch.optim.Optimizer")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for other in hooked_owners(optimizer):
        taken = {id(layer.weight) for layer in other.layers.values()} if isinstance(other, Sparsifier) else set()
        for layer in layers:
            if id(layer.weight) in taken:
                raise ValueError(f"optimizer: {layer.name!r} is sparsified through it already; remove() that first")
    missing = [layer.name for layer in layers if id(layer.weight) not in held]
    if missing:
        raise ValueError(
            f"optimizer: does not hold {missing[0]!r}"
            + (f" and {len(missing) - 1} more of the model's weights" if len(missing) > 1 else "")
            + "; give it the model's parameters, or exclude these"
        )

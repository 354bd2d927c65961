"""The mask updates of a training: when they come, what is kept for them to read, and what they did."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch.optim import Optimizer

from granet.channels import Held
from granet.clock import Clock
from granet.error_line import and_more
from granet.methods import Method
from granet.net import Change, SparseNet
from granet.sparsifier.history import History
from granet.sparsifier.memory import Layout, check_layout
from granet.sparsifier.readings import KeptGradients, read_rates


class MaskUpdates:
    """Lets a method update the masks of a net after the steps that it asked for."""

    def __init__(self, method: Method, net: SparseNet, optimizer: Optimizer, clock: Clock) -> None:
        steps = method.updates(clock)
        if not isinstance(steps, Sequence):  # a user's method may have forgotten to return them
            raise ValueError(f"updates: gave {type(steps).__name__}; must be a range of optimizer steps")
        self._method = method
        self._net = net
        self._optimizer = optimizer
        self.clock = clock
        """Shows the steps taken so far."""
        self.steps = steps
        self._memory = method.gradient_memory
        net.dense_gradients = method.needs_gradient or self._memory is not None  # a memory is of inactive weights too
        if self._memory is not None:
            self._memory.begin(net.layers, steps)
        self.history = History(net.numel)
        self.target = _target(method, clock)
        """What the method asked for at the last update; meaningless if it asks for nothing."""
        self.memory_layout: Layout = {}
        """Of what the method kept when training began."""
        self._kept = KeptGradients(net.layers)
        self._said: set[str] = set()

    @property
    def is_next(self) -> bool:
        """Whether the masks change after the next step."""
        return self.clock.step + 1 in self.steps

    @property
    def reads_next(self) -> bool:
        """Whether gradients of the next step are read: by an update after it, or by the method's memory of them."""
        return self.is_next or self._remembers_next

    @property
    def _remembers_next(self) -> bool:
        return self._memory is not None and self._memory.wants(self.clock.step + 1, self.steps)

    @property
    def held(self) -> Held:
        """How much may be held at zero beside the layers: all else once no update can bring a filter back."""
        if not self.steps or self.clock.step >= self.steps[-1]:
            return "readers"
        return "layers" if self._method.regrows else "outputs"

    def stop(self) -> None:
        """There are no more updates."""
        self.steps = range(0)

    # Gradients, from before they are masked until the step is over.

    def keep_gradients(self) -> bool:
        """Before gradients are masked: keep what an update after this step will read of them.

        Returns whether it has masked them: where growth needs dense copies, copying and masking are one pass.
        """
        if not self.reads_next:
            return False
        if self._net.dense_gradients:
            self._kept.copy()
        else:
            self._kept.refer()
        return self._net.dense_gradients

    def watch_gradients(self) -> None:
        self._kept.watch()

    def remember_gradients(self) -> None:
        """Give the gradients of the step just taken, which the clock does not show yet, to the method's memory."""
        if self._memory is not None and self._remembers_next:
            self._kept.hand_to(self._memory, getattr(self._optimizer, "grad_scale", None))
            if not self.is_next:
                self._kept.forget()

    def forget_gradients(self) -> None:
        self._kept.forget()

    # The update itself.

    def update(self) -> Change:
        """What the method proposes, nothing of it written yet. Layers without a gradient keep their masks."""
        net, clock, change = self._net, self.clock, Change()
        movable = self._kept.present()
        if len(movable) < len(net.layers):
            self._tell_of_still_layers()
        if movable:
            accept = self._kept.all_finite(movable, net.device)
            self.target = _target(self._method, clock)
            if self._method.needs_rate:
                read_rates(self._optimizer, net.layers)
            net.open(clock.step, movable, accept)
            self._method.update(net, clock)
            check_layout(net, self.memory_layout)
            change = net.commit()
            if self._method.logged(clock):
                self.history.add(clock.step, self.target, net.pruned, net.regrown, accept, net.active, net.ever_active)
        if self._memory is not None:
            self._memory.updated(net.layers)
        self._kept.forget()
        return change

    def _tell_of_still_layers(self) -> None:
        still = [layer.name for layer in self._net.layers if not layer.has_gradient]
        self.say_once(
            still,
            f"{still[0]}{and_more(still)}: no gradient at a mask update; such masks are left as they are, and where "
            "there is one budget for all layers, the others make up for it, down to one weight each; sparsify with "
            f"exclude=({still[0]!r},) leaves a layer out of the budget",
        )

    def warn_of_records(self) -> None:
        """Warn of updates that the device skipped and of layers that fell to their floor, as far as is known by now."""
        floors = self._net.floors
        for record in self.history.arrived():
            if record.skipped:
                self.say_once(
                    ["finite"], f"step {record.step}: a gradient is not finite, so this mask update is skipped"
                )
                continue
            counts = zip(self._net.layers, record.active, floors, strict=True)
            if fallen := [layer for layer, active, floor in counts if active <= floor < layer.numel]:
                self.say_once(
                    [f"floor {layer.name}" for layer in fallen],
                    f"step {record.step}: {fallen[0].name}{and_more(fallen)}: only what its floor keeps is left, "
                    f"{floors[fallen[0].index]} of {fallen[0].numel}; a larger floor=, or exclude=, spares it",
                )

    def warn_of_early_end(self) -> None:
        step, asked = self.clock.step, self._method.sparsity
        ends_early = bool(self.steps) and 0 < step < self.steps[-1]
        if ends_early and self._method.has_target and self.target < asked:
            self.say_once(
                ["end"],
                f"training ends at step {step}, before the last update at step {self.steps[-1]}: its masks are "
                f"at sparsity {self.target:.4g} and were asked for {asked:.4g}",
            )

    def say_once(self, topics: Sequence[str], message: str) -> None:
        """Warn, unless there was a warning about all these topics before."""
        if not self._said.issuperset(topics):
            self._said.update(topics)
            warnings.warn(f"granet: {message}", stacklevel=2)


def _target(method: Method, clock: Clock) -> float:
    """What the method asks for, as a plain number, since it is saved: a schedule may use numpy."""
    target = method.target(clock)
    try:
        return float(target)
    except (TypeError, ValueError) as error:
        raise ValueError(f"target: gave {target!r}; must be a sparsity, a share of the weights") from error

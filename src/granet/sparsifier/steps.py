"""What happens around one optimizer step, in the order in which it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from granet.hidden import Hidden
from granet.methods import Method, method_name
from granet.net import Change, SparseNet
from granet.sparsifier.mask_updates import MaskUpdates
from granet.sparsifier.state import SavedState
from granet.sparsifier.zeros import Zeros

Listener = Callable[[Change], None]
NO_CHANGE = Change()


class Steps:
    """Counts the steps, keeps inactive weights at zero in each, and changes the masks after those of an update.

    ``step_hooks`` calls :meth:`before`, and :meth:`taken` or :meth:`given_up`. Where a step is replayed rather than
    called, as from a CUDA graph, the trainer calls :meth:`prepare` before it and :meth:`taken` after it; growth then
    reads what ``.grad`` holds by then.
    """

    def __init__(
        self, method: Method, net: SparseNet, updates: MaskUpdates, zeros: Zeros, hidden: Hidden | None
    ) -> None:
        self.updates = updates
        self.hidden = hidden
        self.listeners: list[Listener] = []
        self._method, self._net, self._zeros = method, net, zeros
        self._due = False
        """Whether weights and optimizer state may still have to be brought in line with the masks."""

    # Around a step.

    def before(self) -> bool:
        """Gradients are complete; returns whether the optimizer may take its step."""
        self.show()  # a step that ended in an exception may have left what is hidden in the weights
        self.prepare()
        self._mask_gradients()
        if self.hidden is not None:
            self.hidden.enter()
        return self._method.step_on_update or not self.updates.is_next

    def prepare(self) -> None:
        """Write what is due, and tell the hidden part, if there is one, which step comes next."""
        self.write_what_is_due()
        if self.hidden is not None:
            self.hidden.prepare(self.updates.clock)

    def mask_gradients(self) -> None:
        """As the step will do, but before it."""
        self._mask_gradients()
        self.watch()

    def watch(self) -> None:
        """Gradients are masked, but others may come before the step is over."""
        self.updates.watch_gradients()

    def _mask_gradients(self) -> None:
        masked = self.updates.keep_gradients()
        if self.hidden is not None:
            self.hidden.pull_back()
        else:
            self._zeros.mask_gradients(masked)

    def taken(self) -> None:
        """Count the step and, if it is time, update the masks."""
        if self.hidden is not None:
            if not self.hidden.leave():
                raise ValueError(f"method={method_name(self._method)!r}: needs optimizer.step() for what is hidden")
            self._zeros.followers.copy_layer_masks()
        else:
            self._zeros.after_step()
        updates = self.updates
        due = updates.is_next
        updates.remember_gradients()
        updates.clock = replace(updates.clock, step=updates.clock.step + 1)
        if due:
            self.apply(updates.update())
        updates.warn_of_records()

    def given_up(self) -> None:
        """The optimizer skipped its step: the clock stands still, and the gradients kept for the step are discarded.

        Zeros are written because a fused SGD that skips its first step leaves its momenta uninitialised.
        """
        self.show()
        self.updates.forget_gradients()
        if self.hidden is None:
            self._zeros.write()

    # Masks, and the weights and the optimizer's state that follow them.

    def apply(self, change: Change) -> None:
        """Write a change, and tell those who listen."""
        self.follow(change)
        self.tell(change)

    def tell(self, change: Change) -> None:
        for listener in self.listeners:
            listener(change)

    def follow(self, change: Change = NO_CHANGE) -> None:
        """Write a change, if there is one, and bring all in line with the masks."""
        self._zeros.begin_anew()
        if self.hidden is None:
            self._zeros.apply(change, self.updates.held)
        else:
            change.write_masks()
            self.hidden.show()  # hidden values and their optimizer state stay
            self._zeros.followers.hold("layers")

    @torch.no_grad()
    def take(self, saved: SavedState) -> None:
        """Go on from a state. Nothing is written into the weights before the next step: others may yet be loaded."""
        for tensor, value in saved.memory:
            tensor.copy_(value)
        for layer in self._net.layers:
            layer.mask.copy_(saved.masks[layer.name])
            layer.identity = replace(layer.identity, seed=saved.seed)
        self.updates.forget_gradients()
        self._net.recount()
        self.updates.clock = replace(self.updates.clock, step=saved.step)
        self.updates.target = saved.target
        self.updates.history.load(saved.history)
        if self.hidden is not None and saved.hidden is not None:
            self.hidden.load(saved.hidden)
            self._zeros.followers.hold("layers")
        else:
            self.drop_hidden()  # nothing is hidden after finish(), and no update comes
            if self._method.hidden:
                self.updates.stop()
            self._zeros.followers.hold(self.updates.held)
            self._due = True

    def write_what_is_due(self) -> None:
        if self._due:
            self._due = False
            self._zeros.write()

    @property
    def in_line(self) -> bool:
        """Whether weights are zero wherever masks say so, as far as it is up to this."""
        return not self._due and (self.hidden is None or self.hidden.shows_zeros)

    # What is trained behind the weights.

    def show(self) -> None:
        """Put back the weights that the model is evaluated with, if a step left what is hidden in their place."""
        if self.hidden is not None:
            self.hidden.leave()

    def end_hidden(self) -> None:
        """Plain weights with exact zeros remain of what was hidden, under masks that are final."""
        if self.hidden is not None:
            self.show()
            self._net.open(self.updates.clock.step)
            self._net.recount()
            self._method.finish(self._net)
            change = self._net.commit()
            change.write_masks()
            self.drop_hidden()
            self.follow()
            self.tell(change)

    def drop_hidden(self) -> None:
        if self.hidden is not None:
            self.hidden.finish()
            self.hidden = None
            self.updates.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Without those who listen to this training: a copy is another one."""
        return self.__dict__ | {"listeners": []}

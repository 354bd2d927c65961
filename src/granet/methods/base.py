"""What a method's module needs: the base class and the times of updates."""

from __future__ import annotations

import dataclasses
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from types import MemberDescriptorType
from typing import Any, ClassVar, Literal

from torch import nn
from torch.optim import Optimizer

from granet.checks import check_share, check_switch
from granet.clock import Clock, Time, parse_time, share_as_text
from granet.hidden import Hidden
from granet.methods.called import method_name
from granet.methods.gradient_memory import GradientMemory, Momentum
from granet.net import SparseNet
from granet.patterns import Groups, parse_pattern
from granet.plain_numbers import plain
from granet.weights import SparseLayer

DenseGradient = Literal["never", "on updates", "always"]


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to train a sparse network: which masks to begin with, when to change them, and how.

    A method is a value: it prints, compares and hashes, and holds no state. Everything that changes during training
    is in the masks and the clock.
    """

    sparsity: float
    """Share of zeros among all sparsified weights at the end, in [0, 1)."""

    pattern: str = "weight"
    """What is kept or dropped together: ``weight``, ``filter``, ``fan-in``, blocks (``4x1``) or N:M (``2:4``).

    N:M gives every layer the same density, whatever ``distribution`` says.
    """

    takes_pattern: ClassVar[bool] = False
    """It works with patterns, not only on single weights: with blocks, filters and what ``takes_groups`` names."""
    takes_groups: ClassVar[tuple[str, ...]] = ("N:M", "fan-in")
    """Which patterns with a fixed number of weights in each group it supports; a threshold can support none."""
    needs_gradient: ClassVar[bool] = False
    """Growth reads the dense gradient, so it is kept on update steps."""
    needs_rate: ClassVar[bool] = False
    """The method moves weights itself, so it needs the optimizer's learning rate."""
    step_on_update: ClassVar[bool] = True
    """The optimizer takes its step on update steps too."""
    hidden: ClassVar[bool] = False
    """Something is trained behind the weights, so ``optimizer.step()`` must be called and cannot be replayed."""
    needs_batches: ClassVar[bool] = False
    """It looks at batches before the first step."""
    needs_trained: ClassVar[bool] = False
    """It starts from the state of a finished first run."""
    dense_passes: ClassVar[int] = 0
    """How often each pass of a step is made with every weight, whatever the masks say; training FLOPs count by it.

    0: once, and only with the active weights.
    """
    regrows: ClassVar[bool] = False
    """Weights that are gone may return. A class with an ``update`` of its own has True, unless it says otherwise."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        nearest = next(parent for parent in cls.__mro__ if vars(parent).keys() & {"update", "regrows"})
        if "regrows" not in vars(nearest):  # what a parent says is about its own update
            cls.regrows = True

    def __post_init__(self) -> None:
        _check_defaults(type(self))
        for item in dataclasses.fields(self):
            if not item.init:  # the method sets it itself, mostly after this
                continue
            value = getattr(self, item.name)
            if not isinstance(value, Enum):  # an Enum may be a number too, but must stay an Enum
                object.__setattr__(self, item.name, plain(value))
            if item.type == "Time":
                check_time(item.name, getattr(self, item.name))
                object.__setattr__(self, item.name, share_as_text(getattr(self, item.name)))
            if item.type == "bool":
                check_switch(item.name, value)
        check_share("sparsity", self.sparsity)
        pattern = parse_pattern(self.pattern)
        if pattern is not None and not self.takes_pattern:
            raise ValueError(
                f"pattern={self.pattern!r}: must be weight, {method_name(self)} works on single weights only"
            )
        if isinstance(pattern, Groups):
            if pattern.kind not in self.takes_groups:
                allowed = ", ".join(("weight", "filter", *self.takes_groups)) + " or blocks such as 4x1"
                raise ValueError(f"pattern={self.pattern!r}: must be {allowed} for {method_name(self)}")
            pattern.check_sparsity(self.sparsity)

    @property
    def dense_gradient(self) -> DenseGradient:
        """Which steps need the gradient of every weight, not only of the active ones; training FLOPs count by it."""
        memory = self.gradient_memory
        if self.dense_passes or isinstance(memory, Momentum):
            return "always"
        return "on updates" if self.needs_gradient or memory is not None else "never"

    @abstractmethod
    def begin(self, net: SparseNet) -> None:
        """Propose the masks that training starts with."""

    def updates(self, clock: Clock) -> range:
        """The optimizer steps after which the masks change; raises ValueError if the times make no sense."""
        return range(0)

    def target(self, clock: Clock) -> float:
        """The sparsity asked for at that moment."""
        return self.sparsity

    @property
    def gradient_memory(self) -> GradientMemory | None:
        """What growth reads of earlier steps' gradients; None for the gradient of the update step alone."""
        return None

    def logged(self, clock: Clock) -> bool:
        """Whether the update of that moment goes into the history."""
        return True

    @property
    def has_target(self) -> bool:
        """Whether a sparsity above 0 is asked for; otherwise it results from the method's other fields."""
        return self.sparsity > 0

    def update(self, net: SparseNet, clock: Clock) -> None:  # noqa: B027 (a method with fixed masks has none)
        """Propose new masks."""

    def hide(self, model: nn.Module, layers: Sequence[SparseLayer], optimizer: Optimizer) -> Hidden | None:
        """What is trained behind the weights, for methods whose ``hidden`` is true."""
        return None

    def finish(self, net: SparseNet) -> None:  # noqa: B027 (most methods end with the masks they have)
        """Propose the final masks, where something is trained behind the weights."""


def _check_defaults(cls: type[Method]) -> None:
    """ValueError if the class means to give a field another default, but Python's dataclasses would not see it."""
    for item in dataclasses.fields(cls):
        value = getattr(cls, item.name, item.default)
        seen = value is item.default or isinstance(value, MemberDescriptorType)  # that of a class with slots
        if item.default is not dataclasses.MISSING and not seen:
            raise ValueError(
                f"{item.name}={value!r}: must have a type in {cls.__name__} ({item.name}: ... = {value!r}), which must "
                f"be a @dataclass(frozen=True); otherwise the default stays {item.default!r}"
            )


def check_time(field: str, value: Time) -> None:
    """Check what can be checked of a time before the length of training is known."""
    amount, _ = parse_time(value, field)
    if field == "every":
        _check_period(value, amount)


def end_step(clock: Clock, end: Time, field: str = "end") -> int:
    """The step that ``end`` stands for, which must be one of the training; ``field`` names it in an error."""
    step = clock.steps(end, field)
    if step > clock.total(field):
        raise ValueError(f"{field}={end!r}: must not be after the last step, total_steps={clock.total_steps}")
    return step


def periodic(clock: Clock, every: Time, start: Time, stop: int) -> range:
    """The multiples of ``every`` from ``start`` on, below step ``stop``."""
    period, begin = _period(clock, every), clock.steps(start, "start")
    first = max(1, -(-begin // period)) * period
    if first >= stop:
        raise ValueError(
            f"every={every!r}: the first update would be after step {first}, but updates must come before step {stop} "
            f"(start={start!r}, total_steps={clock.total_steps}){shorter_period(begin, stop)}"
        )
    return range(first, stop, period)


def shorter_period(begin: int, stop: int) -> str:
    """What to say of a period too long for updates from step ``begin`` on and before ``stop``: one that gives some 30.

    So many prunings are in the paper's trainings. Nothing, where not even an update after every step would do.
    """
    return f"; every={max(1, (stop - begin) // 30)} would do" if max(1, begin) < stop else ""


def recorded(clock: Clock, every: Time) -> range:
    """The multiples of ``every``, up to the last step if it is known: for masks that change without updates."""
    period = _period(clock, every)
    return range(period, (clock.total_steps or sys.maxsize - 1) + 1, period)


def _period(clock: Clock, every: Time) -> int:
    period = clock.steps(every, "every")
    _check_period(every, period)
    return period


def _check_period(every: Time, amount: int | Fraction) -> None:
    if amount == 0:
        raise ValueError(f"every={every!r}: must be at least one optimizer step")

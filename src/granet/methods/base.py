"""What a method is, and the registry of all methods."""

from __future__ import annotations

import dataclasses
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeVar

from torch import nn
from torch.optim import Optimizer

from granet.clock import Clock, Time, parse_time
from granet.gradient_memory import GradientMemory
from granet.hidden import Hidden
from granet.layers import SparseLayer
from granet.net import SparseNet
from granet.patterns import Groups, check_pattern, parse_pattern
from granet.plain_numbers import plain

DenseGradient = Literal["never", "on updates", "always", "all passes twice"]


@dataclass(frozen=True)
class Method(ABC):
    """A way to train a sparse network: which masks to begin with, when to change them, and how.

    A method is a value: it prints, compares and hashes, and holds no state. Everything that changes during training
    is in the masks and the clock.
    """

    sparsity: float
    """Share of zeros among all sparsified weights at the end, in [0, 1)."""

    pattern: str = dataclasses.field(default="weight", kw_only=True)
    """What is kept or dropped together: ``weight``, ``filter``, ``fan-in``, blocks (``4x1``) or N:M (``2:4``).

    N:M gives every layer the same density, whatever ``scope`` and ``distribution`` say.
    """

    takes_pattern: ClassVar[bool] = False
    """It works with patterns, not only on single weights: with blocks, filters and what ``takes_groups`` names."""
    takes_groups: ClassVar[tuple[str, ...]] = ("N:M", "fan-in")
    """Of the patterns that fix the number of weights in each group, those it can keep to; a threshold keeps to none."""
    needs_gradient: ClassVar[bool] = False
    """Growth reads the dense gradient, so it is kept on update steps."""
    needs_rate: ClassVar[bool] = False
    """The method moves weights itself, by the optimizer's learning rate."""
    step_on_update: ClassVar[bool] = True
    """The optimizer takes its step on update steps too."""
    hidden: ClassVar[bool] = False
    """Something is trained behind the weights, so ``optimizer.step()`` must be called and cannot be replayed."""
    needs_batches: ClassVar[bool] = False
    """It looks at batches before the first step."""
    needs_trained: ClassVar[bool] = False
    """It starts from the state of a finished first run."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            object.__setattr__(self, item.name, plain(getattr(self, item.name)))
            if item.type == "Time":
                check_time(item.name, getattr(self, item.name))
        check_share("sparsity", self.sparsity)
        pattern = parse_pattern(self.pattern)
        if pattern is not None and not self.takes_pattern:
            raise ValueError(
                f"pattern={self.pattern!r}: must be weight, {method_name(self)} works on single weights only"
            )
        if isinstance(pattern, Groups) and pattern.kind not in self.takes_groups:
            allowed = ", ".join(("weight", "filter", *self.takes_groups)) + " or blocks such as 4x1"
            raise ValueError(f"pattern={self.pattern!r}: must be {allowed} for {method_name(self)}")
        check_pattern(self.pattern, self.sparsity)

    @property
    def dense_gradient(self) -> DenseGradient:
        """The steps that need the gradient of every weight, not of the active ones alone: training FLOPs count it.

        ``"all passes twice"``: forward passes too use every weight, whatever the masks say, and a second one beside it.
        """
        return "on updates" if self.needs_gradient else "never"

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
        """Whether a sparsity is asked for, above 0; otherwise it is an outcome of the method's other fields."""
        return self.sparsity > 0

    def update(self, net: SparseNet, clock: Clock) -> None:  # noqa: B027 (a method whose masks stay has none)
        """Propose new masks."""

    def hide(self, model: nn.Module, layers: Sequence[SparseLayer], optimizer: Optimizer) -> Hidden | None:
        """What is trained behind the weights, for methods whose ``hidden`` is true."""
        return None

    def finish(self, net: SparseNet) -> None:  # noqa: B027 (most methods end with the masks they have)
        """Propose the final masks, where something is trained behind the weights."""


def check_share(field: str, value: float) -> None:
    """A share of weights that may be nothing but not everything."""
    if not isinstance(value, int | float):
        raise ValueError(f"{field}={value!r}: must be a number in [0, 1)")
    if not 0 <= value < 1:
        raise ValueError(f"{field}={value!r}: must be in [0, 1)")


def check_items(field: str, values: Sequence[object], kinds: tuple[type, ...], words: str) -> None:
    """All values of a field that is a list are of these kinds, told in ``words``; a bool is no number."""
    if any(not isinstance(value, kinds) or isinstance(value, bool) for value in values):
        raise ValueError(f"{field}={list(values)!r}: must hold {words}")


def check_choice(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field}={value!r}: must be one of {', '.join(allowed)}")


def check_count(field: str, value: int) -> None:
    """A whole number of things, at least one."""
    value = plain(value)
    if type(value) is not int or value < 1:
        raise ValueError(f"{field}={value!r}: must be a whole number, 1 or more")


def check_number(field: str, value: float, *, least: float | None = None, above: float | None = None) -> None:
    """A finite number; ``least`` or more, or more than ``above``."""
    good, allowed = isinstance(value, int | float) and math.isfinite(value), "a finite number"
    if least is not None:
        good, allowed = good and value >= least, f"a number, {least:g} or more"
    if above is not None:
        good, allowed = good and value > above, f"a number above {above:g}"
    if not good:
        raise ValueError(f"{field}={value!r}: must be {allowed}")


def check_time(field: str, value: Time) -> None:
    """A time that may make sense, whatever the length of training."""
    amount, _ = parse_time(value, field)
    if field == "every":
        _check_period(value, amount)


def end_step(clock: Clock, end: Time) -> int:
    """The step that ``end`` stands for, which must be one of the training."""
    step = clock.steps(end, "end")
    if step > clock.total("end"):
        raise ValueError(f"end={end!r}: must not be after the last step, total_steps={clock.total_steps}")
    return step


def periodic(clock: Clock, every: Time, start: Time, stop: int) -> range:
    """The multiples of ``every`` from ``start`` on, below step ``stop``."""
    period = _period(clock, every)
    first = max(1, -(-clock.steps(start, "start") // period)) * period
    if first >= stop:
        raise ValueError(
            f"every={every!r}: the first update would be after step {first}, but updates must come before step {stop} "
            f"(start={start!r}, total_steps={clock.total_steps})"
        )
    return range(first, stop, period)


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


@dataclass(frozen=True)
class MethodInfo:
    """One row of the registry: what ``granet methods`` shows. The texts are short, for the cells of a table."""

    name: str
    cls: type[Method]
    summary: str
    paper: str
    """Who and when, each with ``, arXiv`` and its number or with an address; separated by ``;``."""
    score: str = ""
    """What decides which weights stay."""
    growth: str = ""
    """What decides which weights return, where any do."""
    shares: str = ""
    """How layers share the weights, as far as the defaults of ``scope`` and ``distribution`` do not say it."""
    knob: str = ""
    """What sets the sparsity, without ``has_target``."""
    cost: str = ""
    """What it takes beyond a dense step and a mask: memory, passes, another run."""
    before_training: bool = False
    dense_to_sparse: bool = False
    sparse_to_sparse: bool = False
    regrows: bool = False
    """Weights that are gone may return."""
    changes_masks: bool = True
    has_target: bool = True
    """Ends at the sparsity asked for; without, the sparsity follows from other settings."""

    @property
    def when(self) -> str:
        """When the masks are chosen."""
        if self.needs_trained:
            return "after training"
        if self.before_training:
            return "before training"
        starts = {"dense": self.dense_to_sparse, "sparse": self.sparse_to_sparse}
        known = " or ".join(start for start, possible in starts.items() if possible)
        return f"during, from {known}" if known else "during"

    @property
    def distribution(self) -> str:
        """How layers share the weights by default."""
        defaults = {field.name: field.default for field in dataclasses.fields(self.cls)}
        name = str(defaults.get("scope") or defaults.get("distribution") or "")
        shown = name.upper() if name in ("er", "erk") else name
        return ", ".join(part for part in (shown, self.shares) if part)

    @property
    def target(self) -> str:
        """How the sparsity is set."""
        return "exact" if self.has_target else self.knob

    @property
    def hidden(self) -> bool:
        return self.cls.hidden

    @property
    def needs_gradient(self) -> bool:
        return self.cls.needs_gradient

    @property
    def takes_pattern(self) -> bool:
        return self.cls.takes_pattern

    @property
    def takes_groups(self) -> tuple[str, ...]:
        return self.cls.takes_groups if self.takes_pattern else ()

    @property
    def needs_batches(self) -> bool:
        return self.cls.needs_batches

    @property
    def needs_trained(self) -> bool:
        return self.cls.needs_trained


_METHODS: dict[str, MethodInfo] = {}
M = TypeVar("M", bound=type[Method])


def register(name: str, *, paper: str, **facts: Any) -> Callable[[M], M]:
    """Make a method known by name. ``facts`` are fields of `MethodInfo`; the summary is the docstring's first line."""

    def add(cls: M) -> M:
        summary = (cls.__doc__ or "").strip().splitlines()[0]
        _METHODS[name] = MethodInfo(name, cls, summary, paper, **facts)
        return cls

    return add


def list_methods() -> list[MethodInfo]:
    """Every method there is, in the order of its registration."""
    return list(_METHODS.values())


def method_name(method: Method) -> str:
    """The registered name of a method, or its class name if it is the user's own."""
    return next((info.name for info in _METHODS.values() if info.cls is type(method)), type(method).__name__)


def may_regrow(method: Method) -> bool:
    """Whether a weight that is gone may return; taken for granted of a user's own method."""
    return next((info.regrows for info in _METHODS.values() if info.cls is type(method)), True)


def create_method(name: str, **fields: Any) -> Method:
    """A method by name.

    >>> create_method("rigl", sparsity=0.9).every
    100
    """
    if not isinstance(name, str) or name not in _METHODS:
        near = get_close_matches(str(name), _METHODS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"method={name!r}: must be one of {', '.join(_METHODS)}{hint}")
    cls = _METHODS[name].cls
    allowed = {field.name: field.default for field in dataclasses.fields(cls)}
    for field in fields:
        if field not in allowed:
            raise ValueError(f"{field}={fields[field]!r}: {name} has no such field; it has {', '.join(allowed)}")
    if "sparsity" not in fields and allowed["sparsity"] is dataclasses.MISSING:
        raise ValueError(f"sparsity: {name} needs it, a share of zeros in [0, 1)")
    return cls(**fields)

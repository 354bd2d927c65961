"""Everything that defines a training run, as one value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from granet.checks import check_items
from granet.clock import Clock, Time, parse_time, share_as_text
from granet.data.augment import PadMode
from granet.methods import DENSE, Method, former_names, list_methods
from granet.methods.registry import find_method
from granet.observers import check_observer, without_masks
from granet.plain_numbers import plain

PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("multistep", "cosine")
_FINITE = "must be finite"
_TIMES = ("milestones", "warm_up")
_FRACTIONS = ("float", "float | None", float, float | None)  # as a dataclass may write their type
_INSIDE: Mapping[str, tuple[tuple[type, ...], str]] = {
    "milestones": ((int, float, str), "times: steps, shares such as 0.5, or text such as '50%'"),
    "keep": ((int,), "whole numbers"),
    **dict.fromkeys(("no_decay", "observe", "exclude"), ((str,), "text")),
}
"""What the fields that are lists hold."""
_DEFAULT_FIELDS: Mapping[str, Any] = {"sparsity": 0.9, "every": "1ep"}
"""Those of GraNet, the default method; another method takes those of them that it has."""


@dataclass(frozen=True)
class Recipe:
    """What to train, on what, how, and to which sparsity.

    Two runs of one recipe on one machine are equal: on a CPU if they have the same number of threads, on a GPU if they
    are `deterministic`.

    The defaults are the run that `granet train` makes without arguments: GraNet from dense to 90 % sparsity on the
    embedded digits; another method takes those of the default `method_fields` that it has. `width` multiplies all
    hidden widths of the model: a dense run of a narrow one is the Small-Dense baseline. `parent` is the folder of a
    finished run, or its name beside this one, for methods that start from one. The optimizer is always SGD, as in the
    paper. `stretch` multiplies the epochs, and everything written as a share of training stretches with them.

    Learning rate: after a linear `warm_up`, `schedule` "multistep" multiplies it by `gamma` at each milestone, "cosine"
    lets it fall to 0. `no_decay` are globs over names of parameters that weight decay leaves alone. `clip` above 0
    bounds the norm of all gradients together, after masking. With `ema` above 0, what is evaluated and saved is the
    moving average of the weights with that decay.

    `precision` is that of activations and products ("bfloat16" by autocast); weights and gradients are float32 always.
    `compile` fuses the forward and backward pass with `torch.compile`. `deterministic` makes runs on a GPU repeat
    exactly, at some cost in speed; on a CPU they always do. `observe` names what is watched (`granet.observers`); it
    changes nothing in the training. `exclude` are globs over names of weights that stay dense.

    After each epoch in `keep` the whole state is kept for others to branch from. With `branch_epoch` above 0 a run is
    such a branch: it goes on from what `parent` kept after that epoch, over the rest of the schedule, or for `hold`
    epochs at the learning rate of that moment.
    """

    model: str = "digits_net"
    width: float = 1.0
    data: str = "digits"
    method: str = "granet"
    parent: str = ""
    method_fields: Mapping[str, Any] = field(default_factory=lambda: _DEFAULT_FIELDS, hash=False)
    epochs: int = 30
    stretch: float = 1.0
    batch_size: int = 64
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    no_decay: tuple[str, ...] = ()
    schedule: str = "multistep"
    milestones: tuple[Time, ...] = ("50%", "75%")
    gamma: float = 0.1
    warm_up: Time = 0
    label_smoothing: float = 0.0
    clip: float = 0.0
    ema: float = 0.0
    crop: int = 0
    padding: PadMode = "reflect"
    flip: bool = False
    precision: str = "float32"
    compile: bool = False
    deterministic: bool = False
    observe: tuple[str, ...] = ()
    seed: int = 0
    exclude: tuple[str, ...] = ()
    keep: tuple[int, ...] = ()
    branch_epoch: int = 0
    hold: int = 0

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            if item.name == "method_fields":
                continue
            value = plain(getattr(self, item.name))
            if item.name in _INSIDE and isinstance(value, list | tuple):
                value = tuple(map(plain, value))
            check_type(item.name, value)
            if item.name in _TIMES:
                value = tuple(map(share_as_text, value)) if isinstance(value, tuple) else share_as_text(value)
            if item.type in _FRACTIONS:
                value = _fraction(item.name, value)
                _check(item.name, value, math.isfinite(value), _FINITE)
            object.__setattr__(self, item.name, value)
        if self.method_fields is _DEFAULT_FIELDS:
            object.__setattr__(self, "method_fields", _default_fields(self.method))
        object.__setattr__(self, "method_fields", _with_fractions(self.method, self.method_fields))
        _check("width", self.width, self.width > 0, "must be above 0")
        _check("epochs", self.epochs, 1 <= self.epochs < 2**63, "must be 1 or more, below 2**63")
        some = 0.5 < self.epochs * self.stretch < 2**63  # it is rounded
        _check("stretch", self.stretch, some, "must give one epoch at least, below 2**63")
        _check("batch_size", self.batch_size, self.batch_size >= 2, "must be 2 or more (batch norm needs two)")
        _check("lr", self.lr, self.lr > 0, "must be above 0")
        _check("momentum", self.momentum, 0 <= self.momentum < 1, "must be in [0, 1)")
        _check("nesterov", self.nesterov, self.momentum > 0 or not self.nesterov, "needs a momentum above 0")
        _check("weight_decay", self.weight_decay, self.weight_decay >= 0, "must be 0 or more")
        _check("schedule", self.schedule, self.schedule in SCHEDULES, f"must be one of {SCHEDULES}")
        _check("label_smoothing", self.label_smoothing, 0 <= self.label_smoothing < 1, "must be in [0, 1)")
        _check("clip", self.clip, self.clip >= 0, "must be above 0, or 0 for no clipping")
        _check("ema", self.ema, 0 <= self.ema < 1, "must be in [0, 1), 0 for none")
        _check("gamma", self.gamma, self.gamma > 0, "must be above 0")
        _check("crop", self.crop, self.crop >= 0, "must be 0 or more pixels")
        _check("padding", self.padding, self.padding in get_args(PadMode), f"must be one of {get_args(PadMode)}")
        _check("precision", self.precision, self.precision in PRECISIONS, f"must be one of {PRECISIONS}")
        _check("seed", self.seed, 0 <= self.seed < 2**63, "must be 0 or more, below 2**63")
        for name, time in (("warm_up", self.warm_up), *(("milestones", time) for time in self.milestones)):
            parse_time(time, name)
        for name in self.observe:
            check_observer(name)
        last = self.scheduled_epochs
        for epoch in self.keep:
            _check("keep", epoch, 1 <= epoch < last, f"must be an epoch from 1 to {last - 1}, the last but one")
        _check("branch_epoch", self.branch_epoch, 0 <= self.branch_epoch < last, f"must be an epoch before {last}")
        _check("parent", self.parent, bool(self.parent) or not self.branch_epoch, "must name the run to branch from")
        _check("hold", self.hold, self.hold >= 0, "must be a number of epochs, or 0 for the rest of the schedule")
        _check("hold", self.hold, bool(self.branch_epoch) or not self.hold, "needs a branch_epoch above 0")
        end = f"must not go past the end of the schedule: epoch {self.branch_epoch} + {self.hold} > {last}"
        _check("hold", self.hold, self.branch_epoch + self.hold <= last, end)

    @property
    def scheduled_epochs(self) -> int:
        """Epochs of the whole schedule."""
        return round(self.epochs * self.stretch)

    @property
    def total_epochs(self) -> int:
        """The last epoch that is trained."""
        return self.branch_epoch + self.hold if self.hold else self.scheduled_epochs

    def clock(self, training_images: int) -> Clock:
        """How long this run is on that many images; the last, incomplete batch of an epoch is left out."""
        steps_per_epoch = training_images // self.batch_size
        _check("batch_size", self.batch_size, steps_per_epoch >= 1, f"must be at most {training_images}, the images")
        return Clock(step=0, total_steps=self.total_epochs * steps_per_epoch, steps_per_epoch=steps_per_epoch)

    def dense_twin(self) -> Recipe:
        """The same run without sparsity: same seed, so the same initial weights and the same batches.

        It is trained in full even if this run starts from another one, so that all such runs share one twin. A run that
        is dense already is its own twin.
        """
        start: dict[str, Any] = {} if self.method == DENSE else {"parent": "", "branch_epoch": 0, "hold": 0}
        return dataclasses.replace(self, method=DENSE, method_fields={}, observe=without_masks(self.observe), **start)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `Recipe.from_dict` takes them back."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Recipe:
        """The recipe that `to_dict` wrote, now or earlier, even after a trip through JSON."""
        known = [item.name for item in dataclasses.fields(Recipe)]
        for name in values:
            _check("recipe", name, name in known, f"is not one of its fields: {', '.join(known)}")
        method, fields = values.get("method", Recipe.method), values.get("method_fields")
        written = {} if fields is None else {"method_fields": former_names.present(known_class(method), fields)}
        return Recipe(**{**values, **written})


def check_type(name: str, value: object) -> None:
    """A field must have the type of its default; an integer will do for a float, and a time may be either, or text."""
    wanted = type(Recipe.__dataclass_fields__[name].default)
    good: tuple[type, ...] = {float: (int, float), tuple: (list, tuple)}.get(wanted, (wanted,))
    kind = "list" if wanted is tuple else wanted.__name__
    if name == "warm_up":
        good, kind = (int, float, str), "int (steps), float (a share) or str (such as '5ep' or '2%')"
    is_it = isinstance(value, good) and (wanted is bool or not isinstance(value, bool))
    _check(name, value, is_it, f"must be of type {kind}")
    if isinstance(value, list | tuple):
        check_items(name, value, *_INSIDE[name])


def method_class(name: str) -> type[Method] | None:
    """The class of a method, None for training without one; ValueError for a name that is neither."""
    check_type("method", name)
    return None if name == DENSE else find_method(name, DENSE).cls


def known_class(name: str) -> type[Method] | None:
    """The class of a method that is registered, without importing one of the user's own."""
    return next((info.cls for info in list_methods() if info.name == name), None)


def takes_parent(method: str, branch_epoch: int) -> bool:
    """Whether a run of the method starts from another one."""
    cls = method_class(method)
    return bool(branch_epoch) or (cls is not None and cls.needs_trained)


def check_parent(recipe: Recipe) -> None:
    """ValueError for a parent where the method starts from no other run."""
    needless = bool(recipe.parent) and not takes_parent(recipe.method, recipe.branch_epoch)
    _check("parent", recipe.parent, not needless, f"must be left out, {recipe.method} does not start from another run")


def _default_fields(method: str) -> dict[str, Any]:
    cls = method_class(method)
    has = {item.name for item in dataclasses.fields(cls)} if cls else set()
    if "rate" in has:  # which says how much is pruned
        has.remove("sparsity")
    return {name: value for name, value in _DEFAULT_FIELDS.items() if name in has}


def _with_fractions(method: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a method as a file has them, one value written in one way: numbers, and shares of training."""
    cls = known_class(method)
    kinds = {item.name: item.type for item in dataclasses.fields(cls)} if cls else {}
    given = {name: _as_in_a_file(value) for name, value in fields.items()}
    shares = {name: share_as_text(value) if kinds.get(name) == "Time" else value for name, value in given.items()}
    return {name: _fraction(name, value) if kinds.get(name) in _FRACTIONS else value for name, value in shares.items()}


def _as_in_a_file(value: Any) -> Any:
    """`value` as JSON gives it back, so that a run is known again by its recipe: tuples as lists, keys as text."""
    if type(value) in (tuple, list):
        return [_as_in_a_file(item) for item in value]
    if type(value) is dict:
        return {str(key): _as_in_a_file(item) for key, item in value.items()}
    return plain(value)


def _fraction(name: str, value: Any) -> Any:
    """`value`, as a float if it is a number: 1 and 1.0 must be one recipe and so one run, as must 0.0 and -0.0."""
    try:
        return float(value) + 0.0 if type(value) in (int, float) else value
    except OverflowError as error:
        raise ValueError(f"{name}={value!r}: {_FINITE}") from error


def _check(name: str, value: object, good: bool, allowed: str) -> None:
    if not good:
        raise ValueError(f"{name}={value!r}: {allowed}")

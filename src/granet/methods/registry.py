"""The registry of all methods: what each is called, what it can do, and how to make one by name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from granet.error_line import did_you_mean
from granet.import_path import imported
from granet.methods.base import Method
from granet.methods.called import give_name

DENSE = "dense"
"""What recipes call training without a method."""


@dataclass(frozen=True)
class MethodInfo:
    """One row of the registry: what ``granet methods`` shows. The texts are short, for the cells of a table."""

    name: str
    cls: type[Method]
    summary: str
    paper: str
    """Authors and year, then ``, arXiv`` and a number or ``,`` and a URL; several are separated by ``;``."""
    score: str = ""
    """What decides which weights stay."""
    growth: str = ""
    """What decides which weights return, where any do."""
    distributed: str = ""
    """How layers share the weights, beyond what the default of the field ``distribution`` says."""
    knob: str = ""
    """What sets the sparsity, if the method does not end at the one asked for."""
    cost: str = ""
    """What it takes beyond a dense step and a mask: memory, passes, another run."""
    before_training: bool = False
    dense_to_sparse: bool = False
    sparse_to_sparse: bool = False

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
        default = next(
            (str(field.default) for field in dataclasses.fields(self.cls) if field.name == "distribution"), ""
        )
        shown = default.upper() if default in ("er", "erk") else default
        return ", ".join(part for part in (shown, self.distributed) if part)

    @property
    def exact_target(self) -> bool:
        """Whether it ends at the sparsity asked for."""
        return not self.knob

    @property
    def target(self) -> str:
        """How the sparsity is set."""
        return self.knob or "exact"

    @property
    def regrows(self) -> bool:
        return self.cls.regrows

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
    """Make a method known by name. ``facts`` are fields of `MethodInfo`; the summary is the docstring's first line.

    A user's method may be registered again, as happens in a notebook, but not under the name of a built-in one: runs
    are identified by the name, so finished runs of one would be taken for those of the other.
    """
    if not isinstance(name, str) or re.fullmatch(r"\w[\w.-]*", name) is None:
        raise ValueError(
            f"name={name!r}: must be letters, digits, '_', '.' and '-', and begin with none of the last two; the "
            "folders of its runs are named after it"
        )
    if name == DENSE:
        raise ValueError(f"name={name!r}: is that of training without a method; take another")

    known = [field.name for field in dataclasses.fields(MethodInfo) if field.default is not dataclasses.MISSING]
    for fact, value in facts.items():
        if fact not in known:
            raise ValueError(f"{fact}={value!r}: register takes {', '.join(known)}; the class says the rest")

    def add(cls: M) -> M:
        if name in _METHODS and _is_ours(_METHODS[name].cls) and not _is_ours(cls):
            raise ValueError(f"name={name!r}: is that of {_METHODS[name].cls.__name__}, which granet has; take another")
        _METHODS[name] = MethodInfo(name, cls, _summary(cls), paper, **facts)
        give_name(cls, name)
        return cls

    return add


def _summary(cls: type) -> str:
    text = (cls.__doc__ or "").strip()
    # A dataclass without a docstring gets its signature as one, which is no summary.
    return "" if text.startswith(f"{cls.__name__}(") else text.partition("\n")[0]


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("granet.")


def list_methods() -> list[MethodInfo]:
    """Every method there is, in the order of its registration."""
    return list(_METHODS.values())


def find_method(name: str, *others: str) -> MethodInfo:
    """The method of that name. One that is ``package.module:Class`` is imported, and is in the list from then on.

    ``others`` are names of something else that the ValueError offers too.
    """
    if isinstance(name, str) and ":" in name and name not in _METHODS:
        cls = _own_class(name)
        known = next((info for info in _METHODS.values() if info.cls is cls), None)
        _METHODS[name] = dataclasses.replace(known, name=name) if known else MethodInfo(name, cls, _summary(cls), "")
    if not isinstance(name, str) or name not in _METHODS:
        names = (*others, *_METHODS)
        allowed = f"{', '.join(names)}, or package.module:Class of your own{did_you_mean(str(name), names)}"
        raise ValueError(f"method={name!r}: must be one of {allowed}")
    return _METHODS[name]


def _own_class(name: str) -> type[Method]:
    cls = imported("method", name)
    if not isinstance(cls, type) or not issubclass(cls, Method) or inspect.isabstract(cls):
        raise ValueError(f"method={name!r}: must be a class that is derived from granet.Method and defines begin")
    return cls


def create_method(name: str, **fields: Any) -> Method:
    """A method by name.

    >>> create_method("rigl", sparsity=0.9).every
    100
    """
    cls = find_method(name).cls
    allowed = [field.name for field in dataclasses.fields(cls) if field.init]
    for field in fields:
        if field not in allowed:
            raise ValueError(f"{field}={fields[field]!r}: {name} has no such field; it has {', '.join(allowed)}")
    for field in fields_without_default(cls):
        if field not in fields:
            what = "a share of zeros in [0, 1)" if field == "sparsity" else "a field without a default"
            raise ValueError(f"{field}: {name} needs it, {what}")
    return cls(**fields)


def fields_without_default(cls: type[Method]) -> list[str]:
    """What must be given to make one."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return [field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING]

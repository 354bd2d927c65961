"""Which weights of a model are sparse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.parameter import is_lazy

from granet.weights.candidates import Candidate, candidates_of, check_kind
from granet.weights.layer import SparseLayer, lay_in_a_row
from granet.weights.orientation import ROWS_FIRST


@dataclass(frozen=True)
class Choice:
    """What a user asks for, in globs over parameter names."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    also: tuple[str, ...]

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str], also: Sequence[str]) -> Choice:
        return cls(_globs("include", include), _globs("exclude", exclude), _globs("also", also))

    def why_not(self, one: Candidate) -> str:
        """Why a parameter that is not sparse stays dense; what the user leaves out is told from what does by itself."""
        left_out = _matching(self.exclude, one.names) or not _matching(self.include, one.names)
        return "excluded" if left_out else one.dense_because or "frozen"

    def takes(self, one: Candidate) -> str:
        """The glob that asks for this parameter, as an option; empty if it is not asked for."""
        if _matching(self.exclude, one.names):
            return ""
        if added := _matching(self.also, one.names):
            return f"also={min(added)!r}"
        return "model" if one.default and _matching(self.include, one.names) else ""

    def check_used(self, candidates: Sequence[Candidate], known: str) -> None:
        """ValueError if a glob matches nothing; all that may be excluded is what might be sparse."""
        default = [one for one in candidates if one.default]
        matrices = [one for one in candidates if one.default or is_matrix(one)]
        for option, globs, among in (
            ("include", self.include, default),
            ("exclude", self.exclude, matrices),
            ("also", self.also, candidates),
        ):
            for glob in globs:
                if glob != "*" and not any(_matching([glob], one.names) for one in among):
                    what = "parameter" if option == "also" else "sparsifiable weight"
                    raise ValueError(f"{option}={glob!r}: matches no {what}{_hint(option, glob, candidates)}; {known}")


def find_layers(
    model: nn.Module,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    seed: int = 0,
    *,
    also: Sequence[str] = (),
    take_frozen: bool = False,
) -> list[SparseLayer]:
    """The weights to sparsify, in the order of ``model.named_parameters()``.

    By default those of every layer of a known kind (`granet.weights.kinds`), except what is tied to an embedding, LoRA
    matrices and what chooses among experts. ``include`` and ``exclude`` are globs over parameter names, and ``also``
    adds parameters by globs, whatever module they belong to. A tied weight counts once, under its first name, and any
    of its names matches. Frozen weights are left out, unless they are taken for pruning without training.
    """
    choice = Choice.of(include, exclude, also)
    candidates = candidates_of(model)
    default = [one for one in candidates if one.default]
    known = f"weights here: {_some([one.names[0] for one in default])}"
    chosen: list[Candidate] = []
    frozen: list[str] = []
    for one in candidates:
        if not (option := choice.takes(one)):
            continue
        if not (one.parameter.requires_grad or take_frozen):
            frozen.append(one.names[0])
            continue
        check_kind(one, option)
        if one.parameter.numel() > 0:
            chosen.append(one)
    choice.check_used(candidates, known)
    if not chosen:
        if not default:
            raise ValueError(
                f"model: no sparsifiable weight in {type(model).__name__}; name others in also=(glob, ...), "
                "or their class in granet.register_weights"
            )
        if not take_frozen and not any(one.parameter.requires_grad for one in default):
            raise ValueError(f"model: every weight of {type(model).__name__} is frozen; requires_grad must be True")
        hint = f" that trains ({_some(frozen)}: frozen, requires_grad=False)" if frozen else ""
        raise ValueError(f"include={choice.include!r}, exclude={choice.exclude!r}: leave no weight{hint}; {known}")
    layers = [
        SparseLayer.of(one.names[0], one.parameter, index, seed, one.orientation or ROWS_FIRST)
        for index, one in enumerate(chosen)
    ]
    lay_in_a_row(layers)
    return layers


def _globs(option: str, value: str | Iterable[str]) -> tuple[str, ...]:
    if not isinstance(value, Iterable):
        raise ValueError(f"{option}={value!r}: must be globs over parameter names, such as ('features.*',)")
    globs = (value,) if isinstance(value, str) else tuple(value)
    for glob in globs:
        if not isinstance(glob, str):
            raise ValueError(f"{option}={glob!r}: must be a glob over parameter names, such as 'features.*'")
    return globs


def _matching(globs: Sequence[str], names: Sequence[str]) -> set[str]:
    return {glob for glob in globs if any(fnmatchcase(name, glob) for name in names)}


def _hint(option: str, glob: str, candidates: Sequence[Candidate]) -> str:
    """What a user may have meant by a glob without a match."""
    if any(_matching([f"{glob}.*"], one.names) for one in candidates if one.default):  # a module's name
        return f" (did you mean '{glob}.*'?)"
    others = [one for one in candidates if is_matrix(one) and _matching([glob], one.names)]
    if option == "include" and others:
        return f" ({others[0].names[0]}: {others[0].dense_because}; also={glob!r} adds it)"
    return ""


def is_matrix(one: Candidate) -> bool:
    """Whether it could be sparse: two or more dimensions, as far as that is known."""
    return not is_lazy(one.parameter) and one.parameter.ndim > 1


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "") or "none"

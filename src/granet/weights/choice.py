"""Which weights of a model are sparse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from granet.weights.candidates import Candidate, candidates_of, check_kind
from granet.weights.layer import SparseLayer, lay_in_a_row


def find_layers(
    model: nn.Module,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    seed: int = 0,
    *,
    take_frozen: bool = False,
) -> list[SparseLayer]:
    """The weights to sparsify, in the order of ``model.named_parameters()``.

    By default the weight of every convolution (transposed ones too) and every linear layer. ``include`` and
    ``exclude`` are globs over parameter names; a name written out in full in ``include`` adds that parameter
    whatever module it belongs to. A tied weight counts once, under its first name, and any of its names matches.
    Frozen weights are left out, unless they are taken for pruning without training.
    """
    include, exclude = _globs("include", include), _globs("exclude", exclude)
    candidates = candidates_of(model)
    default = [one for one in candidates if one.default]
    known = f"convolution and linear weights here: {_some([one.names[0] for one in default])}"
    used: set[str] = set()
    chosen: list[Candidate] = []
    frozen: list[str] = []
    for one in candidates:
        if not one.default and not set(one.names) & set(include):
            continue
        hits, misses = _matching(include, one.names), _matching(exclude, one.names)
        used |= hits | misses
        if not hits or misses:
            continue
        if not (one.parameter.requires_grad or take_frozen):
            frozen.append(one.names[0])
            continue
        check_kind(one)
        if one.parameter.numel() > 0:
            chosen.append(one)
    for option, globs in (("include", include), ("exclude", exclude)):
        for glob in globs:
            if glob not in used and glob != "*":
                hint = _hint(option, glob, candidates)
                raise ValueError(f"{option}={glob!r}: matches no sparsifiable weight{hint}; {known}")
    if not chosen:
        if not default:
            raise ValueError(
                f"model: no sparsifiable weight in {type(model).__name__}; {known}; "
                "others have to be named in full in include"
            )
        if not take_frozen and not any(one.parameter.requires_grad for one in default):
            raise ValueError(
                f"model: every convolution and linear weight of {type(model).__name__} is frozen, requires_grad=False"
            )
        hint = f" that trains ({_some(frozen)}: frozen, requires_grad=False)" if frozen else ""
        raise ValueError(f"include={include!r}, exclude={exclude!r}: leave no weight{hint}; {known}")
    layers = [
        SparseLayer.of(one.names[0], one.parameter, index, seed, one.orientation) for index, one in enumerate(chosen)
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
    if any(one.default and _matching([f"{glob}.*"], one.names) for one in candidates):  # a module's name
        return f" (did you mean '{glob}.*'?)"
    others = [one for one in candidates if not one.default and one.parameter.ndim > 1 and _matching([glob], one.names)]
    if option == "include" and others:
        return f" ({_some([one.names[0] for one in others])}: must be named in full, without * or ?)"
    return ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "") or "none"

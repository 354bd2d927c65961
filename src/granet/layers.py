"""Which weights are sparse, and one small view object for each."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from granet.tensors.row import Row, kinds, nonzero, sizes

SPARSIFIABLE = (_ConvNd, nn.Linear)


@dataclass(eq=False)
class SparseLayer:
    """One sparse weight: its parameter, its mask and its counts."""

    name: str
    weight: nn.Parameter = field(repr=False)
    index: int
    seed: int
    transposed_groups: int = 0
    """The groups of a transposed convolution, whose weight is [in, out / groups, ...]; 0 where it is [out, in, ...]."""
    mask: Tensor = field(init=False, repr=False)
    """Bool, in the shape and memory layout of the weight; True where the weight is active. Its storage never moves."""
    _kept: tuple[Sequence[Tensor], int] | None = field(default=None, init=False, repr=False)
    """Where ``gradient`` is: a sequence of tensors and an index. A `Row` is not cut up until it is read."""
    _refusal: str = field(default="", init=False, repr=False)
    """Why ``gradient`` must not be read now, if it must not."""
    gradient_source: weakref.ref[Tensor] | None = field(default=None, init=False, repr=False)
    """The tensor that ``gradient`` was copied from."""
    rate: float | Tensor = field(default=0.0, init=False, repr=False)
    """The learning rate of the step before a mask update, for methods that move weights themselves."""
    memory: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    """What the method keeps between updates about each weight."""
    hidden: Tensor | None = field(default=None, init=False, repr=False)
    """What a method keeps behind the weight: its dense values, or the log variance of its noise."""

    def __post_init__(self) -> None:
        self.mask = torch.ones_like(self.weight, dtype=torch.bool, requires_grad=False)

    def __getstate__(self) -> dict[str, Any]:
        """With a copy of the mask, which is a slice of one tensor for all layers: pickling would write all of that.

        Without the gradient of an unfinished step, since copies of parameters have no ``.grad`` either.
        """
        return self.__dict__ | {"mask": self.mask.clone(), "_kept": None, "gradient_source": None}

    @property
    def gradient(self) -> Tensor | None:
        """The gradient that a mask update reads, kept from the backward pass; for growth, as it was before masking."""
        if self._refusal:
            raise ValueError(f"{self.name}: {self._refusal}")
        return None if self._kept is None else self._kept[0][self._kept[1]]

    @gradient.setter
    def gradient(self, gradient: Tensor | None) -> None:
        self._kept = None if gradient is None else ((gradient,), 0)

    @property
    def has_gradient(self) -> bool:
        return self._kept is not None

    def keep_gradient(self, tensors: Sequence[Tensor], place: int) -> None:
        """Let ``gradient`` be ``tensors[place]``, which is looked up only when it is read."""
        self._kept = tensors, place

    @contextmanager
    def gradient_refused(self, reason: str) -> Iterator[None]:
        """In this context, reading ``gradient`` raises a ValueError that names the layer and gives the reason."""
        self._refusal = reason
        try:
            yield
        finally:
            self._refusal = ""

    @property
    def numel(self) -> int:
        return self.weight.numel()

    @property
    def active(self) -> int:
        return int(self.mask.count_nonzero())

    @property
    def sparsity(self) -> float:
        return (self.numel - self.active) / self.numel


def gradients_of(layers: Sequence[SparseLayer]) -> Sequence[Tensor]:
    """The ``gradient`` of each layer; all must have one. Kept together as one sequence, they are returned as that."""
    kept = [layer._kept for layer in layers]
    tensors = kept[0][0] if kept[0] is not None else ()
    if len(tensors) == len(layers) and all(one and one[0] is tensors and one[1] == i for i, one in enumerate(kept)):
        return tensors
    return [one[0][one[1]] for one in kept if one is not None]


def count_active(masks: Mapping[str, Tensor]) -> dict[str, int]:
    """Name to the number of True in each mask; waits for the device once."""
    counts = nonzero(masks.values(), next(iter(masks.values())).device)
    return dict(zip(masks, counts.tolist(), strict=True))


def find_layers(
    model: nn.Module, include: Sequence[str] = ("*",), exclude: Sequence[str] = (), seed: int = 0
) -> list[SparseLayer]:
    """The weights to sparsify, in the order of ``model.named_parameters()``.

    By default the weight of every convolution (transposed ones too) and every linear layer. ``include`` and
    ``exclude`` are globs over parameter names; a name written out in full in ``include`` adds that parameter
    whatever module it belongs to. A tied weight counts once, under its first name, and any of its names matches.
    Frozen weights are left out.
    """
    include, exclude = _globs("include", include), _globs("exclude", exclude)
    candidates = _candidates(model)
    default = [one for one in candidates if one.default]
    known = f"convolution and linear weights here: {_some([one.names[0] for one in default])}"
    used: set[str] = set()
    chosen: list[_Candidate] = []
    frozen: list[str] = []
    for one in candidates:
        if not one.default and not set(one.names) & set(include):
            continue
        hits, misses = _matching(include, one.names), _matching(exclude, one.names)
        used |= hits | misses
        if not hits or misses:
            continue
        if not one.parameter.requires_grad:
            frozen.append(one.names[0])
            continue
        _check_kind(one)
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
        if not any(one.parameter.requires_grad for one in default):
            raise ValueError(
                f"model: every convolution and linear weight of {type(model).__name__} is frozen, requires_grad=False"
            )
        hint = f" that trains ({_some(frozen)}: frozen, requires_grad=False)" if frozen else ""
        raise ValueError(f"include={include!r}, exclude={exclude!r}: leave no weight{hint}; {known}")
    layers = [
        SparseLayer(one.names[0], one.parameter, index, seed, one.transposed_groups) for index, one in enumerate(chosen)
    ]
    lay_in_a_row(layers)
    return layers


@dataclass
class _Candidate:
    """A parameter of the model, with what its modules tell about it."""

    parameter: nn.Parameter
    names: list[str] = field(default_factory=list)
    default: bool = False
    """The weight of a convolution or a linear layer."""
    transposed_groups: int = 0
    sparse_gradients: bool = False


def _candidates(model: nn.Module) -> list[_Candidate]:
    """Every parameter once, a tied one with all of its names."""
    found: dict[int, _Candidate] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for short, parameter in module._parameters.items():
            if parameter is None:
                continue
            one = found.setdefault(id(parameter), _Candidate(parameter))
            one.names.append(plain_name(f"{prefix}.{short}" if prefix else short))
            if short == "weight" and isinstance(module, SPARSIFIABLE):
                one.default = True
                if isinstance(module, _ConvNd) and module.transposed:
                    one.transposed_groups = one.transposed_groups or module.groups
            elif isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
                one.sparse_gradients = True
    return list(found.values())


def _check_kind(one: _Candidate) -> None:
    parameter, name = one.parameter, one.names[0]
    if is_lazy(parameter):
        raise ValueError(f"model: {name!r} has no shape yet; run one forward pass before sparsifying")
    if hasattr(parameter, "__tensor_flatten__"):  # a wrapper around other tensors, such as a shard
        raise ValueError(f"model: {name!r} is a {type(parameter).__name__}; only plain tensors can be sparsified")
    if parameter.ndim < 2 or not parameter.is_floating_point():
        must = "must be a floating-point weight of two or more dimensions"
        if one.default:
            raise ValueError(f"model: {name!r} {must}; exclude={name!r} leaves it dense")
        raise ValueError(f"include={name!r}: {must}")
    if one.sparse_gradients and not one.default:  # if tied to a linear layer, its gradient is dense
        raise ValueError(f"include={name!r}: its gradients would be sparse tensors; give it sparse=False")


def lay_in_a_row(layers: Sequence[SparseLayer]) -> None:
    """Make the masks slices of one tensor, if they are on one device.

    One call can then copy them all, as long as each is stored in its logical order.
    """
    masks = [layer.mask for layer in layers]
    if len(kinds(masks)) == 1:
        whole = torch.empty(sum(sizes(masks)), dtype=torch.bool, device=masks[0].device)
        for layer, mask in zip(layers, Row(whole, masks), strict=True):
            layer.mask = mask.copy_(layer.mask)


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


def _hint(option: str, glob: str, candidates: Sequence[_Candidate]) -> str:
    """What a user may have meant by a glob without a match."""
    if any(one.default and _matching([f"{glob}.*"], one.names) for one in candidates):  # a module's name
        return f" (did you mean '{glob}.*'?)"
    others = [one for one in candidates if not one.default and one.parameter.ndim > 1 and _matching([glob], one.names)]
    if option == "include" and others:
        return f" ({_some([one.names[0] for one in others])}: must be named in full, without * or ?)"
    return ""


def plain_name(name: str) -> str:
    """The parameter's name in the model as written, whether or not ``torch.compile`` wraps it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model as written: neither compiled nor wrapped for several ranks."""
    inner = getattr(model, "_orig_mod", model)
    return unwrapped(inner.module) if isinstance(inner, DistributedDataParallel) else inner


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "") or "none"

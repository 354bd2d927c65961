"""Every parameter of a model, with what its modules tell about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn
from torch.nn.parameter import is_lazy

from granet.names import plain_name
from granet.weights.kinds import weights_in
from granet.weights.orientation import Orientation

_ADAPTERS = {"lora_A", "lora_B"}
_ROUTER = re.compile(r"(.*_)?(gate|router)")


@dataclass
class Candidate:
    """A parameter of the model."""

    parameter: nn.Parameter
    names: list[str] = field(default_factory=list)
    """All of its names, the first one first."""
    orientation: Orientation | None = None
    """How it lies, if it is a weight of a known kind of module."""
    embeds: bool = False
    aside: str = ""
    """What makes it a small matrix that trains beside the others, if it is one."""
    sparse_gradients: bool = False

    @property
    def dense_because(self) -> str:
        """Why it stays dense by default; empty if it does not."""
        if self.embeds:
            return "tied to an embedding" if self.orientation is not None else "embedding"
        return self.aside or ("" if self.orientation is not None else "not a known weight")

    @property
    def default(self) -> bool:
        return not self.dense_because


def candidates_of(model: nn.Module) -> list[Candidate]:
    """Every parameter once, a tied one with all of its names."""
    found: dict[int, Candidate] = {}
    modules: dict[str, nn.Module] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        modules[prefix] = module
        weights = weights_in(module)
        for short, parameter in module._parameters.items():
            if parameter is None:
                continue
            one = found.setdefault(id(parameter), Candidate(parameter))
            one.names.append(plain_name(f"{prefix}.{short}" if prefix else short))
            one.aside = one.aside or _aside(prefix, modules)
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                one.embeds = True
                one.sparse_gradients |= module.sparse
            elif short in weights and (one.orientation is None or one.orientation.out == 0):
                one.orientation = weights[short]  # of a weight tied to a transposed one, the filters of that
    return list(found.values())


def _aside(prefix: str, modules: Mapping[str, nn.Module]) -> str:
    """What tells an adapter, or what chooses among experts, from the weights that do the work."""
    path = prefix.split(".")
    if _ADAPTERS & set(path):
        return "LoRA"
    for place, name in enumerate(path):
        if _ROUTER.fullmatch(name) and "experts" in modules[".".join(path[:place])]._modules:
            return "router of experts"
    return ""


def check_kind(one: Candidate, option: str) -> None:
    """ValueError if it cannot be sparsified; ``option`` is what asked for it."""
    parameter, name = one.parameter, one.names[0]
    if is_lazy(parameter):
        raise ValueError(f"model: {name!r} has no shape yet; run one forward pass before sparsifying")
    if hasattr(parameter, "__tensor_flatten__"):  # a wrapper around other tensors, such as a shard
        raise ValueError(f"model: {name!r} is a {type(parameter).__name__}; only plain tensors can be sparsified")
    if parameter.ndim < 2 or not parameter.is_floating_point():
        way_out = f"; exclude={name!r} leaves it dense" if one.default else ""
        raise ValueError(f"{option}: {name!r} must be a floating-point weight of two or more dimensions{way_out}")
    if one.sparse_gradients and one.orientation is None:  # if tied to a linear layer, its gradient is dense
        raise ValueError(f"{option}: the gradients of {name!r} would be sparse tensors; give it sparse=False")

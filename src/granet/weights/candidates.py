"""Every parameter of a model, with what its modules tell about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

from granet.weights.names import plain_name
from granet.weights.orientation import ROWS_FIRST, Orientation

SPARSIFIABLE = (_ConvNd, nn.Linear)


@dataclass
class Candidate:
    """A parameter of the model, with what its modules tell about it."""

    parameter: nn.Parameter
    names: list[str] = field(default_factory=list)
    default: bool = False
    """The weight of a convolution or a linear layer."""
    orientation: Orientation = ROWS_FIRST
    sparse_gradients: bool = False


def candidates_of(model: nn.Module) -> list[Candidate]:
    """Every parameter once, a tied one with all of its names."""
    found: dict[int, Candidate] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for short, parameter in module._parameters.items():
            if parameter is None:
                continue
            one = found.setdefault(id(parameter), Candidate(parameter))
            one.names.append(plain_name(f"{prefix}.{short}" if prefix else short))
            if short == "weight" and isinstance(module, SPARSIFIABLE):
                if one.orientation.out == 0:  # of a weight that is tied to a transposed one, the filters of that
                    one.orientation = orientation_in(module)
                one.default = True
            elif isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
                one.sparse_gradients = True
    return list(found.values())


def orientation_in(module: nn.Module) -> Orientation:
    """How the weight of a convolution or linear layer lies."""
    groups = getattr(module, "groups", 1)
    return Orientation(1, 0, groups=groups) if getattr(module, "transposed", False) else Orientation(groups=groups)


def check_kind(one: Candidate) -> None:
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

"""Which parameters of a module are weights, and how they lie: by the module's class. Users may add to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

from granet.weights.orientation import ROWS_FIRST, Orientation

Lies = Mapping[str, Orientation]
"""The name of a parameter in its module, and how it lies."""


def register_weights(module_type: type[nn.Module] | str, weights: Lies | Callable[[nn.Module], Lies]) -> None:
    """Let `sparsify` find the weights of a class of modules and of its subclasses, whatever was known of it before.

    Args:
        module_type: the class; or its full name as text, which may be a glob, so that nothing need be imported.
        weights: how each weight lies, by the name of its parameter; ``{}`` leaves such modules dense. Or a function
            that says it for a module. A parameter called ``weight`` is taken for one that the module's input is
            multiplied by, and ``bias`` for what is then added.

    >>> class Mixer(nn.Module): ...
    >>> register_weights(Mixer, {"table": Orientation(experts=0, out=2, inputs=1)})
    """
    if not (isinstance(module_type, str) or (isinstance(module_type, type) and issubclass(module_type, nn.Module))):
        raise ValueError(f"module_type={module_type!r}: must be a class of modules, or its full name as text")
    if not (callable(weights) or isinstance(weights, Mapping)):
        raise ValueError(
            f"weights={weights!r}: must be a dict such as {{'weight': granet.Orientation(out=1, inputs=0)}}"
        )
    _KINDS.pop(module_type, None)  # if it is there already, it is the last one from now on
    _KINDS[module_type] = weights


def weights_in(module: nn.Module) -> dict[str, Orientation]:
    """The weights of a module by the names of their parameters; empty if its class is none that is known.

    ValueError if one does not fit what its class was registered with.
    """
    for one in type(module).__mro__:
        if (kind := _kind(one)) is not None:
            lies = kind(module) if callable(kind) else kind
            if not isinstance(lies, Mapping):
                raise ValueError(f"register_weights: gave {lies!r} for {type(module).__name__}; must be a dict")
            found = {name: how for name, how in lies.items() if module._parameters.get(name) is not None}
            for name, how in found.items():
                _check(module, name, how)
            return found
    return {}


def linear_maps(model: nn.Module) -> dict[int, list[nn.Module]]:
    """The modules that multiply their input by a weight, by its id: one, unless it is tied."""
    found: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        if "weight" in weights_in(module):
            found.setdefault(id(module._parameters["weight"]), []).append(module)
    return found


def _kind(one: type) -> Lies | Callable[[nn.Module], Lies] | None:
    """What was registered last for that class, under itself or its name, counts."""
    name = f"{one.__module__}.{one.__qualname__}"
    for key, kind in reversed(_KINDS.items()):
        if fnmatchcase(name, key) if isinstance(key, str) else key is one:
            return kind
    return None


def _check(module: nn.Module, name: str, how: Orientation) -> None:
    weight = module._parameters[name]
    assert weight is not None
    if not isinstance(how, Orientation):
        raise ValueError(f"register_weights: {type(module).__name__}.{name}={how!r}: must be a granet.Orientation")
    if not is_lazy(weight) and (why := how.misfit(weight.shape)):
        raise ValueError(
            f"register_weights: {type(module).__name__}.{name} of shape {list(weight.shape)} does not fit: {why}"
        )


def _convolution(module: nn.Module) -> Lies:
    assert isinstance(module, _ConvNd)
    rows, columns = (1, 0) if module.transposed else (0, 1)
    return {"weight": Orientation(rows, columns, groups=module.groups)}


def _experts(module: nn.Module) -> Lies:
    """The stacked matrices of a mixture's experts: [experts, out, in], or [experts, in, out].

    Classes of later versions of transformers say which. Where one does not, the widths do: gate and up are two matrices
    side by side, so they are twice as wide as what down reads.
    """
    stacked = {name: weight for name, weight in module._parameters.items() if weight is not None and weight.ndim == 3}
    transposed = getattr(module, "is_transposed", None)
    if transposed is None:
        if not {"gate_up_proj", "down_proj"} <= stacked.keys():
            return {}
        transposed = stacked["gate_up_proj"].shape[1] == stacked["down_proj"].shape[2]
    how = Orientation(experts=0, out=2, inputs=1) if transposed else _STACKED
    return dict.fromkeys(stacked, how)


_STACKED = Orientation(experts=0, out=1, inputs=2)
_KINDS: dict[type | str, Lies | Callable[[nn.Module], Lies]] = {
    nn.Linear: {"weight": ROWS_FIRST},
    _ConvNd: _convolution,
    nn.MultiheadAttention: {
        "in_proj_weight": Orientation(parts=3),
        **dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight"), ROWS_FIRST),
    },
    "transformers.pytorch_utils.Conv1D": {"weight": Orientation(out=1, inputs=0)},
    "transformers.models.*Experts": _experts,
    "transformers.models.*ParallelExperts": {"weight": _STACKED},
}

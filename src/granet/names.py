"""Names as the model was written, whatever wraps it."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def plain_name(name: str) -> str:
    """The parameter's name in the model as written, whether or not ``torch.compile`` wraps it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


_WRAPPERS = {"_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def bare_name(name: str) -> str:
    """The name without what compilers, trainers and averages put into it or, as ``module.``, in front of it.

    >>> bare_name("module._orig_mod.features.0.weight"), bare_name("_forward_module.head.module.weight")
    ('features.0.weight', 'head.module.weight')
    """
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":
        del parts[0]
    return ".".join(parts)


def matched(here: Iterable[str], there: Iterable[str]) -> dict[str, str]:
    """Names here to the same names there, whatever wrapper either side was saved or made in.

    >>> matched(["module.weight", "weight"], ["weight", "module.weight"])  # a part of the model may be called so
    {'module.weight': 'module.weight', 'weight': 'weight'}
    """
    exact = dict.fromkeys(there)
    bare = {bare_name(name): name for name in exact}
    pairs = {name: name if name in exact else bare.get(bare_name(name)) for name in here}
    return {name: other for name, other in pairs.items() if other is not None}


def unwrapped(model: nn.Module) -> nn.Module:
    """The model as written: neither compiled nor wrapped for several ranks."""
    inner = getattr(model, "_orig_mod", model)
    return unwrapped(inner.module) if isinstance(inner, DistributedDataParallel) else inner

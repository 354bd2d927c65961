"""Names as the model was written, whatever wraps it."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def plain_name(name: str) -> str:
    """The parameter's name in the model as written, whether or not ``torch.compile`` wraps it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model as written: neither compiled nor wrapped for several ranks."""
    inner = getattr(model, "_orig_mod", model)
    return unwrapped(inner.module) if isinstance(inner, DistributedDataParallel) else inner

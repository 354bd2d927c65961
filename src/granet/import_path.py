"""What ``package.module:name`` names: a model or a method of one's own, from a module that Python finds."""

from __future__ import annotations

import importlib
from typing import Any


def imported(field: str, path: str) -> Any:
    """The object that `path` names; ValueError that names the field it was given as if there is none.

    >>> imported("model", "torch.nn:Linear").__name__
    'Linear'
    """
    module_name, _, attribute = path.partition(":")
    if module_name.startswith("."):
        raise ValueError(f"{field}={path!r}: must be the whole name of a module, without a dot before it")
    try:
        target: Any = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise ValueError(f"{field}={path!r}: cannot import module {module_name!r} ({error})") from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise ValueError(f"{field}={path!r}: module {module_name!r} has no {attribute!r}")
        target = getattr(target, part)
    return target

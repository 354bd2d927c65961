"""Sparse training for PyTorch: GraNet and the methods it is compared with."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from granet.public import *  # noqa: F403 - what is public is said there
else:  # for a type checker, a module with __getattr__ would have any name

    def __getattr__(name: str) -> Any:
        """A module of this package, or a public name: at the first of these all are imported, and torch with them."""
        if find_spec(f"granet.{name}") is not None:
            return import_module(f"granet.{name}")
        public = import_module("granet.public")
        globals().update({each: getattr(public, each) for each in ("__all__", *public.__all__)})
        if name not in globals():
            raise AttributeError(f"module 'granet' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return globals()[name]

    def __dir__() -> list[str]:
        __getattr__("__all__")
        return sorted(globals())

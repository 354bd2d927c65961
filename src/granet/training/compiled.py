"""`torch.compile` once for all runs of a process.

A function that takes its model as an argument is compiled for models of that kind, not for that one: runs of the same
architecture share what was compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

MANY = 10_000

SETTINGS = {
    "recompile_limit": MANY,  # nothing is left uncompiled because other kinds of arguments were met before
    "accumulated_recompile_limit": MANY,
    "skip_nnmodule_hook_guards": False,  # a model with hooks, as VD has them, is of another kind than one without
    "skip_no_tensor_aliasing_guards_on_parameters": False,  # as is one that uses a layer twice
}
"""Of torch's compiler, while it decides whether it knows a kind; older ones have fewer."""


@cache
def compiled(function: Callable[..., Any], beside: bool = False) -> Callable[..., Any]:
    """The function, compiled anew for every kind of arguments that it meets.

    ``beside``: its weight gradients are made on a stream of their own.
    """
    options: dict[str, Any] = {}
    if beside:
        from granet.training.beside import OPTIONS  # torch's compiler comes with it

        options = OPTIONS
    compile = torch.compile(function, dynamic=False, options=options)
    settings = {name: value for name, value in SETTINGS.items() if hasattr(torch._dynamo.config, name)}

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with torch._dynamo.config.patch(settings):
            return compile(*arguments)

    return call

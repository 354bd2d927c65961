"""`torch.compile` once for all runs of a process.

A function that takes its model as an argument is compiled for all models of that kind, so runs of the same architecture
share the compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

MANY = 10_000

SETTINGS = {
    "recompile_limit": MANY,  # never fall back to eager because other kinds of arguments came before
    "accumulated_recompile_limit": MANY,
    "skip_nnmodule_hook_guards": False,  # a model with hooks, such as VD's, is another kind than one without
    "skip_no_tensor_aliasing_guards_on_parameters": False,  # and so is one that uses a layer twice
}
"""Settings of torch's compiler while it decides whether it knows a kind."""


@cache
def compiled(function: Callable[..., Any], side_stream: bool = False) -> Callable[..., Any]:
    """The function, compiled anew for every kind of arguments that it meets.

    ``side_stream``: its weight gradients are computed on a stream of their own.
    """
    options: dict[str, Any] = {}
    if side_stream:
        from granet.training.side_stream import OPTIONS  # torch's compiler comes with it

        options = OPTIONS
    compile = torch.compile(function, dynamic=False, options=options)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with torch._dynamo.config.patch(SETTINGS):
            return compile(*arguments)

    return call

"""An exported model as calls of its layers, in the words of a symbolic trace: for models that such a trace cannot take.

Sizes are those of the example. A layer is known by its weight; what has no word here is told as the operator itself,
which `traced` takes for one that may do anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from granet.channels.constants import BATCH_NORMS, POOLS, SAME
from granet.channels.exported import Exported, operator_of, shape_of
from granet.channels.products import product_of

_WORDS: dict[str, Any] = {
    **{name: getattr(torch, name) for name in ("add", "sub", "mul", "cat", "mean", "sum", "amax", "sigmoid", "tanh")},
    **{
        name: getattr(functional, name)
        for name in ("relu", "leaky_relu", "prelu", "elu", "selu", "celu", "gelu", "silu")
    },
    **{name: getattr(functional, name) for name in ("mish", "hardswish", "softsign")},
    **{name: getattr(functional, name, None) for name in POOLS},
    **dict.fromkeys((name for name in POOLS if name.startswith(("upsample", "_upsample"))), functional.interpolate),
    **dict.fromkeys(SAME, torch.clone),
    "max_pool2d_with_indices": functional.max_pool2d,
    "max_pool3d_with_indices": functional.max_pool3d,
    "_adaptive_avg_pool2d": functional.adaptive_avg_pool2d,
    "_adaptive_avg_pool3d": functional.adaptive_avg_pool3d,
}
_CALLED = (nn.Linear, nn.modules.conv._ConvNd)


def lift(model: Exported, modules: Mapping[str, nn.Module]) -> fx.Graph:
    """The graph that `torch.fx` would have traced, as far as channels are concerned."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in model.nodes:
        made[node] = _lifted(node, graph, made, model, modules)
    return graph


def _lifted(
    node: fx.Node, graph: fx.Graph, made: dict[fx.Node, fx.Node], model: Exported, modules: Mapping[str, nn.Module]
) -> fx.Node:
    if (name := model.name(node)) is not None:
        return graph.get_attr(name) if _used_elsewhere(node, model, modules) else graph.placeholder(node.name)
    if node.op != "call_function":
        return graph.node_copy(node, made.__getitem__)
    layer = _layer(node, model, modules)
    if layer is not None:
        return graph.call_module(layer, (made[node.all_input_nodes[_place(node)]],))
    named = operator_of(node)
    source = node.args[0] if node.args else None
    if (
        named == "getitem"
        and isinstance(source, fx.Node)
        and node.args[1] == 0
        and operator_of(source) in BATCH_NORMS | POOLS
    ):
        return made[source]
    if named in ("view", "_unsafe_view", "reshape") and _flattens(node):
        return graph.call_function(torch.flatten, (made[source], 1))  # type: ignore[index]
    return graph.call_function(_WORDS.get(named) or node.target, *_mapped(node, made))  # type: ignore[arg-type]


def _mapped(node: fx.Node, made: dict[fx.Node, fx.Node]) -> tuple[Any, Any]:
    return fx.map_arg(node.args, made.__getitem__), fx.map_arg(node.kwargs, made.__getitem__)


def _layer(node: fx.Node, model: Exported, modules: Mapping[str, nn.Module]) -> str | None:
    """The module whose whole call the operator is."""
    if (product := product_of(node)) is not None:
        name, _, short = (model.name(product.weight) or "").rpartition(".")
        module = modules.get(name)
        whole = isinstance(module, _CALLED) and short == "weight" and (product.bias is None) == (module.bias is None)
        return name if whole and _is(model, product.bias, f"{name}.bias") else None
    if operator_of(node) in BATCH_NORMS:
        for place in range(1, 5):
            if (owned := model.name(node.args[place])) is not None:
                name = owned.rpartition(".")[0]
                return name if isinstance(modules.get(name), nn.modules.batchnorm._BatchNorm) else None
    return None


def _is(model: Exported, node: fx.Node | None, name: str) -> bool:
    return node is None or model.name(node) == name.removeprefix(".")


def _place(node: fx.Node) -> int:
    """Which of its inputs a layer reads."""
    product = product_of(node)
    return 0 if product is None else node.all_input_nodes.index(product.x)


def _used_elsewhere(node: fx.Node, model: Exported, modules: Mapping[str, nn.Module]) -> bool:
    owner = (model.name(node) or "").rpartition(".")[0]
    return any(_layer(user, model, modules) != owner for user in node.users)


def _flattens(node: fx.Node) -> bool:
    """Whether all dimensions but the first become one."""
    old, new = shape_of(node.args[0]), shape_of(node)
    return old is not None and new is not None and len(new) == 2 <= len(old) and old[0] == new[0]

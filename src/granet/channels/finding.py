"""Which parameters can be held at zero with a dropped filter, found by tracing the model once."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from granet.channels.exported import export
from granet.channels.followers import Follower, Followers, Reader, filters_left
from granet.channels.lifted import lift
from granet.channels.traced import trace_channels
from granet.names import plain_name, unwrapped
from granet.weights import SparseLayer, weights_in


def find_followers(
    model: nn.Module, layers: Sequence[SparseLayer], trained: Collection[nn.Parameter], example: Any = None
) -> Followers:
    """Find biases by the module that owns a weight, all else by tracing the model; warn of what cannot be held.

    Held can be what is ``trained`` by the optimizer at hand. With an example the model is exported.
    """
    names = {id(parameter): plain_name(name) for name, parameter in model.named_parameters()}
    model = unwrapped(model)
    modules = dict(model.named_modules())
    followers = Followers(layers)
    by_weight = {id(layer.weight): layer for layer in layers}
    for name, module in modules.items():
        for short, orientation in weights_in(module).items():
            filters = by_weight.get(id(module._parameters[short]))
            # If its weight is tied to a transposed one, the filters may be its inputs.
            if filters is not None and orientation == filters.identity.orientation:
                _lead(followers, filters, name, module, _bias_of(short), names, trained)
    graph = _traced(model) if example is None else lift(export(model, example), modules)
    if graph is not None:
        for leader, name, norm in _norms_behind(followers.leaders, graph, modules):
            followers.norms.append((leader, norm))
            _lead(followers, leader, name, norm, "bias", names, trained)
        followers.flow = trace_channels(graph, modules)
        elsewhere = {node.target for node in graph.nodes if node.op == "get_attr"}
        for name, weight in _only_read(followers.flow.reads, model, trained, elsewhere):
            held = Follower(names[id(weight)], weight)
            followers.readers[name] = Reader(modules[name], held, by_weight.get(id(weight)))
    if followers.loose:
        _warn(
            f"{', '.join(followers.loose)}: trained by another optimizer, so dropped filters go on adding it to what "
            "they output, and later layers keep their weights for them",
            stacklevel=4,
        )
    return followers


def _traced(model: nn.Module) -> fx.Graph | None:
    try:
        return fx.Tracer().trace(model)
    except Exception as error:  # a stranger's forward may raise anything, mostly about torch.fx itself
        branches = isinstance(error, fx.proxy.TraceError)
        why = "decides by values of its inputs" if branches else "takes or does what torch.fx cannot follow"
        _warn(
            f"{type(model).__name__} cannot be traced: its forward {why}; so only what needs no trace is held at zero, "
            "the dropped filters and their own biases: batch norms still add their bias to these, and later layers "
            "keep their weights for them; example= may help, with which the model is exported"
        )
        return None


def _norms_behind(
    leaders: Mapping[str, SparseLayer], graph: fx.Graph, modules: Mapping[str, nn.Module]
) -> list[tuple[SparseLayer, str, _BatchNorm]]:
    """Batch norms that are called once, on what a leader outputs, each with that leader and its own name."""
    calls = [node for node in graph.nodes if node.op == "call_module"]
    once = {name for name, count in Counter(node.target for node in calls).items() if count == 1}
    found = []
    for leader, user in [
        (leaders[node.target], user) for node in calls if node.target in leaders for user in node.users
    ]:
        norm = modules.get(str(user.target)) if user.op == "call_module" else None
        width = len(filters_left(leader))  # a norm over the places of [batch, places, channels] has another width
        if isinstance(norm, _BatchNorm) and user.target in once and norm.num_features == width:
            found.append((leader, str(user.target), norm))
        if user.op == "output":
            _warn(f"a dropped row of {leader.name!r} is an output of the model; exclude=({leader.name!r},) spares it")
    return found


def _bias_of(weight: str) -> str:
    """What the bias of a weight is called, if there is one."""
    return weight.replace("weight", "bias") if "weight" in weight else f"{weight}_bias"


def _lead(
    followers: Followers,
    filters: SparseLayer,
    name: str,
    module: nn.Module,
    short: str,
    names: Mapping[int, str],
    trained: Collection[nn.Parameter],
) -> None:
    """Let the bias of the module follow the filters; with it at zero, the module outputs zero for dropped ones."""
    bias = getattr(module, short, None)
    if isinstance(bias, Tensor) and bias.numel() != len(filters_left(filters)):
        return
    if isinstance(bias, nn.Parameter) and bias.requires_grad and bias not in trained:
        followers.loose.append(names[id(bias)])
        return
    if isinstance(bias, nn.Parameter):
        followers.biases.append((filters, Follower(names[id(bias)], bias)))
    if short == "bias" and (bias is None or isinstance(bias, nn.Parameter)):
        followers.leaders[name] = filters


def _only_read(
    layers: Iterable[str], model: nn.Module, trained: Collection[nn.Parameter], elsewhere: Collection[object]
) -> Iterator[tuple[str, nn.Parameter]]:
    """Layers whose weights this optimizer trains and nothing uses but the layer itself."""
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    for name in layers:
        weight = model.get_submodule(name).weight
        alone = uses[id(weight)] == 1 and f"{name}.weight" not in elsewhere
        if isinstance(weight, nn.Parameter) and weight in trained and alone:
            yield name, weight


def _warn(message: str, stacklevel: int = 5) -> None:
    """Warn at the line that calls ``sparsify``, which is ``stacklevel`` calls up from here."""
    warnings.warn(f"granet: pattern='filter': {message}", stacklevel=stacklevel)

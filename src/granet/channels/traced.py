"""How channels travel through a model, read from its traced operators: the steps that `silence.py` evaluates.

The model is traced as its forward runs at that time, for inputs with a batch dimension. Tracing shows operators but no
sizes, so only the channels of a tensor are known. The output of an operator that is not in the tables here counts as
not silent. The operator may also have written to its inputs (``x += 1`` and ``x + 1`` look the same), so these, and all
tensors that share their memory, no longer count as silent either.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from granet.channels.silence import Flow, Rule, Step


def _spellings(*names: str) -> set[object]:
    """Functions of torch in every form they can be called: from two namespaces, and by name as methods."""
    functions = {getattr(owner, name) for owner in (functional, torch) for name in names if hasattr(owner, name)}
    return functions | set(names)


# Modules go by their exact types: a subclass may do anything.
_CONVOLUTIONS = {nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d}
_NORMS = {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm}
_BEND = {  # f(0) = 0, element by element
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU,
    nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Tanh, nn.Softsign,
    *_spellings("dropout", "dropout1d", "dropout2d", "dropout3d", "relu", "relu_", "relu6", "leaky_relu", "prelu"),
    *_spellings("elu", "selu", "celu", "gelu", "silu", "mish", "hardswish", "tanh", "softsign", "contiguous", "clone"),
}  # fmt: skip
_POOLS = ("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool")
_POOL_FUNCTIONS = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
_POOL = {  # along the dimensions behind the channels
    nn.Upsample,
    functional.interpolate,
    *(getattr(nn, f"{name}{n}d") for name in _POOLS for n in (1, 2, 3)),
    *(getattr(functional, f"{name}{n}d") for name in _POOL_FUNCTIONS for n in (1, 2, 3)),
}
_REDUCE = _spellings("mean", "sum", "amax")
_FLATTEN = _spellings("flatten") | {nn.Flatten}
_VIEW = _spellings("view", "reshape")
_ADD = _spellings("add", "add_", "sub", "sub_") | {operator.add, operator.sub}
_MULTIPLY = _spellings("mul", "mul_") | {operator.mul}
_JOIN = _spellings("cat", "concat")
_GATE = _spellings("sigmoid") | {nn.Sigmoid}  # f(0) > 0: the same channels, none of them silent
_NEW = _CONVOLUTIONS | _NORMS | _POOL | _REDUCE | _JOIN | _GATE | _spellings("clone") | {nn.Linear}  # new memory


def trace_channels(graph: fx.Graph, modules: Mapping[str, nn.Module]) -> Flow:
    """How channels travel from layer to layer."""
    tracer = _Tracer(modules)
    for node in graph.nodes:
        tracer.read(node)
    known = tracer.reads.keys() - tracer.unknown
    reads = {layer: tracer.add("all", steps) for layer, steps in tracer.reads.items() if layer in known}
    return Flow(tuple(tracer.steps), reads)


@dataclass(frozen=True)
class _Channels:
    """What is known of a tensor."""

    step: int
    """The step that says which channels are silent."""
    width: int
    axis: int
    """Their dimension, counted from the end, so that broadcasting does not change it."""
    rank: int | None
    """The number of dimensions of the tensor, if known."""
    flattened: bool = False
    """A channel is now a block of columns. All blocks have the same, unknown size."""

    @property
    def second(self) -> bool:
        """Whether they are dimension 1."""
        return self.rank is not None and self.rank + self.axis == 1


class _Tracer:
    """Goes through the operators in the order they run in."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        self._known: dict[object, _Channels] = {}
        self._memory: dict[fx.Node, set[fx.Node]] = {}
        """Node to all nodes whose memory its tensor may share."""
        self.steps: list[Step] = []
        self.reads: dict[str, list[int]] = {}
        """Layer to the silence of its inputs, call by call."""
        self.unknown: set[str] = set()
        """Layers with a call whose inputs are not known."""

    def add(self, rule: Rule, parts: Iterable[int] = (), **fields: Any) -> int:
        self.steps.append(Step(rule, tuple(parts), **fields))
        return len(self.steps) - 1

    def read(self, node: fx.Node) -> None:
        module = self._modules.get(str(node.target)) if node.op == "call_module" else None
        called = type(module) if module is not None else node.target if node.op.startswith("call_") else None
        shared = [] if called in _NEW else node.all_input_nodes
        self._memory[node] = {node}.union(*(self._memory[source] for source in shared))
        if called == "size" or (called is getattr and node.args[1] == "shape"):
            self._memory[node].clear()  # no tensor
        elif (channels := self._channels(node, called, module)) is not None:
            self._known[node] = channels
        else:
            self._forget(node.all_input_nodes)

    def _forget(self, written: Sequence[fx.Node]) -> None:
        memory = set[fx.Node]().union(*(self._memory[node] for node in written))
        self._known = {node: known for node, known in self._known.items() if not self._memory[node] & memory}  # type: ignore[index]

    def _channels(self, node: fx.Node, called: object, module: Any) -> _Channels | None:
        """What the operator returns."""
        source = self._known.get(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
        if called in _CONVOLUTIONS or called is nn.Linear:
            return self._layer(node, module, source)
        if called in _ADD:
            total = self._sum(node)
            self._forget([term for term in node.args[:1] if isinstance(term, fx.Node)])  # it may hold the sum now
            return total
        if called in _MULTIPLY:
            return self._product(node)
        if called in _JOIN:
            return self._join(node)
        if source is None:
            return None
        if called in _NORMS:
            return self._norm(node, module, source)
        if called in _BEND or (called in _POOL and source.second and source.axis < -1):
            return source
        if called in _GATE:
            return replace(source, step=self.add("dropped", width=source.width))
        if called in _REDUCE:
            return _reduced(node, source)
        if source.second and _flattens(node, called, module):
            return replace(source, axis=-1, rank=2, flattened=source.flattened or source.axis < -1)
        return None

    def _layer(self, node: fx.Node, module: Any, source: _Channels | None) -> _Channels:
        name = str(node.target)
        if isinstance(module, nn.Linear):
            inputs, outputs, groups, axis = module.in_features, module.out_features, 1, -1
            rank = source.rank if source is not None else None
        else:
            inputs, outputs, groups = module.in_channels, module.out_channels, module.groups
            axis = -len(module.kernel_size) - 1
            rank = 1 - axis
        step = self.add("dropped", width=outputs, module=name)
        if (read := self._inputs(source, axis, inputs)) is None:
            self.unknown.add(name)
        else:
            self.reads.setdefault(name, []).append(read)
            if module.bias is None:
                step = self.add("any", (step, self.add("through", (read,), width=outputs, groups=groups)))
        return _Channels(step, outputs, axis, rank)

    def _inputs(self, source: _Channels | None, axis: int, inputs: int) -> int | None:
        """The step with an entry for each input of a layer."""
        if source is None or source.axis != axis:
            return None
        if source.flattened and inputs % source.width == 0:
            return self.add("blocks", (source.step,), width=inputs)
        return source.step if source.width == inputs else None

    def _norm(self, node: fx.Node, module: Any, source: _Channels) -> _Channels | None:
        if source.width != module.num_features or source.flattened or not (source.second or source.rank is None):
            return None
        quiet = self.add("dropped", width=source.width, module=str(node.target))
        return replace(source, step=self.add("all", (source.step, quiet)))

    def _sum(self, node: fx.Node) -> _Channels | None:
        """Silent where every term is; sum() begins with the number 0."""
        terms = [self._known.get(term) for term in node.args if not (isinstance(term, int) and term == 0)]
        return self._alike("all", terms) if not node.kwargs.keys() - {"alpha"} else None

    def _product(self, node: fx.Node) -> _Channels | None:
        """Silent where a factor is."""
        factors = [self._known.get(factor) for factor in node.args if isinstance(factor, fx.Node)]
        known = [factor for factor in factors if factor is not None]
        if node.kwargs or not known:
            return None
        return self._alike("any", factors) or replace(known[0], rank=None)  # the other may have more dimensions

    def _alike(self, rule: Rule, parts: Sequence[_Channels | None]) -> _Channels | None:
        """Tensors with the same channels, combined."""
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or len({(part.width, part.axis, part.flattened) for part in known}) != 1:
            return None
        rank = known[0].rank if len({part.rank for part in known}) == 1 else None
        return replace(known[0], step=self.add(rule, [part.step for part in known]), rank=rank)

    def _join(self, node: fx.Node) -> _Channels | None:
        """Concatenated along their channels."""
        listed: Any = node.args[0] if node.args else ()
        parts = [self._known.get(part) for part in listed] if isinstance(listed, list | tuple) else []
        known = [part for part in parts if part is not None and not part.flattened]
        axis: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if not known or len(known) < len(parts) or len({(part.axis, part.rank) for part in known}) != 1:
            return None
        first = known[0]
        if axis != first.axis and (first.rank is None or axis != first.axis + first.rank):
            return None
        return replace(first, step=self.add("join", [p.step for p in known]), width=sum(p.width for p in known))


def _reduced(node: fx.Node, source: _Channels) -> _Channels | None:
    """The mean over dimensions other than the channels'."""
    axes: Any = node.args[1] if len(node.args) == 2 else node.kwargs.get("dim")
    axes = axes if isinstance(axes, list | tuple) else [axes]
    if source.rank is None or not axes or not all(isinstance(axis, int) for axis in axes):  # without axes, over all
        return None
    gone = {axis - source.rank if axis >= 0 else axis for axis in axes}
    if source.axis in gone:
        return None
    if node.kwargs.get("keepdim"):
        return source
    return replace(source, axis=source.axis + sum(axis > source.axis for axis in gone), rank=source.rank - len(gone))


def _flattens(node: fx.Node, called: object, module: Any) -> bool:
    """Whether all dimensions but the first become one."""
    if called is nn.Flatten:
        return (module.start_dim, module.end_dim) == (1, -1)
    if called in _FLATTEN:
        return (*node.args[1:], *node.kwargs.items()) in ((1,), (1, -1), (("start_dim", 1),))
    if called in _VIEW:
        sizes: Any = node.args[1:]
        sizes = sizes[0] if len(sizes) == 1 else sizes
        return isinstance(sizes, list | tuple) and len(sizes) == 2 and _is_batch_size(sizes[0], node.args[0])
    return False


def _is_batch_size(size: Any, tensor: object) -> bool:
    """``tensor.size(0)``, ``tensor.size()[0]`` or ``tensor.shape[0]``."""
    if getattr(size, "target", None) is operator.getitem and size.args[1] == 0:
        size = size.args[0]
        return (size.target, *size.args) in (("size", tensor), (getattr, tensor, "shape"))
    return isinstance(size, fx.Node) and (size.target, *size.args) == ("size", tensor, 0)

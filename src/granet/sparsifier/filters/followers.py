"""What else becomes zero where a filter is dropped: its bias, what a batch norm adds, and the weights that read it.

A batch norm that sees zeros outputs its bias, less its running mean when it evaluates. Both are held at zero for
dropped filters; the norm's factor then multiplies zero and may stay. Weights of later layers that read such a silent
channel have no effect and no gradient; they are held at zero too, so that they are neither stored nor counted.

A filter that outputs exactly zero into a ReLU gets no gradient, for the slope of a ReLU is 0 there: growth would not
see it, and once grown from zero it would never move. So as long as filters may grow back, their biases are left alone
and a dropped filter outputs a constant; from the last mask update on (or ``finish()``, where weights are hidden) it
outputs zero. Biases that are zero, as a batch norm's are at first, do not help: filters that a random start leaves out
hardly ever come to life.

The weights that read silent channels wait for the last mask update in any case. They are part of filters that a method
may still compare, and filters behind a thinned layer must not look small because of it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from granet.channels import Flow, trace_channels
from granet.hidden import groups_of
from granet.masking import zero_inactive
from granet.names import plain_name, unwrapped
from granet.patterns import FILTERS
from granet.weights import Follower, Masked, SparseLayer, weights_in

Held = Literal["layers", "outputs", "readers"]
"""How much is held at zero: only the inactive weights of the layers; also what else dropped filters would output, so
that they are silent; also the weights that read silent channels."""


@dataclass(eq=False)
class Reader:
    """A convolution or linear layer whose input channels may be silent."""

    module: nn.Module
    held: Follower
    """Its weight with a second mask, which is also False where the weight reads silent channels."""
    layer: SparseLayer | None
    """Its weight as one of the sparse layers, if it is one."""

    def mask_columns(self, silent: Tensor) -> None:
        """Hold at zero what reads those input channels; a filter of a group reads the channels of that group alone."""
        mask = self.held.mask
        kernel = [1] * (mask.ndim - 2)
        if getattr(self.module, "transposed", False):
            columns = silent.view(-1, 1, *kernel)
        else:
            groups = silent.view(getattr(self.module, "groups", 1), 1, -1)
            columns = groups.expand(-1, len(mask) // len(groups), -1).reshape(len(mask), -1, *kernel)
        mask.logical_and_(~columns.to(mask.device))


@dataclass(eq=False)
class Followers:
    """Parameters that are zero because filters are dropped, with masks of their own besides those of the layers.

    Under other patterns there are none, and it is false.
    """

    layers: Sequence[SparseLayer]
    leaders: dict[str, SparseLayer] = field(default_factory=dict)
    """Module to the layer whose dropped filters it outputs zero for: its own, or the one in front of a batch norm."""
    biases: list[tuple[SparseLayer, Follower]] = field(default_factory=list)
    """A layer, and a bias of its module or of the batch norm behind it."""
    norms: list[tuple[SparseLayer, _BatchNorm]] = field(default_factory=list)
    readers: dict[str, Reader] = field(default_factory=dict)
    flow: Flow = field(default_factory=Flow)
    loose: list[str] = field(default_factory=list)
    """Biases that another optimizer trains: they cannot be held at zero, so what they are added to is not silent."""
    silent: bool = False
    """Whether dropped filters output zero."""

    def __bool__(self) -> bool:
        return bool(self.biases or self.norms or self.readers)

    @property
    def held(self) -> list[Masked]:
        """All parameters with zeros to hold, the layers among them, each once."""
        readers = {id(reader.held.weight): reader.held for reader in self.readers.values()}
        layers: list[Masked] = [readers.pop(id(layer.weight), layer) for layer in self.layers]
        return [*layers, *readers.values(), *(bias for _, bias in self.biases)]

    def hold(self, what: Held) -> None:
        """Hold that at zero and nothing else: derive all masks from those of the layers, which may be new.

        Zeros are not written.
        """
        self.silent = what != "layers"
        for filters, bias in self.biases:
            if self.silent:
                bias.mask.copy_(_active(filters).view_as(bias.mask))
            else:
                bias.mask.fill_(True)
        for reader in self.readers.values():
            if reader.layer is None:
                reader.held.mask.fill_(True)
        self.copy_layer_masks()
        if what == "readers":
            self._mask_readers()

    def copy_layer_masks(self) -> None:
        """Give readers that are sparse layers themselves the masks of those layers.

        It is enough in place of ``hold("layers")`` as long as nothing besides the layers is held.
        """
        pairs = [(reader.held.mask, reader.layer.mask) for reader in self.readers.values() if reader.layer is not None]
        if pairs:
            torch._foreach_copy_([held for held, _ in pairs], [mask for _, mask in pairs])

    def _mask_readers(self) -> None:
        """Mask the weights that read silent channels."""
        dropped = {name: ~_active(filters) for name, filters in self.leaders.items()}
        silent = self.flow.silent_inputs(dropped, self.layers[0].mask.device)
        for name, reader in self.readers.items():
            reader.mask_columns(silent[name])

    def zero_means(self) -> None:
        """Zero the running means of silent filters, from before they were dropped or from the middle of a step.

        They have no masks in :attr:`held`, so this goes with every writing of zeros there.
        """
        if self.silent:
            zero_inactive(
                (norm.running_mean, _active(filters)) for filters, norm in self.norms if norm.running_mean is not None
            )


def find_followers(model: nn.Module, layers: Sequence[SparseLayer], optimizer: Optimizer | None) -> Followers:
    """Find biases by the module that owns a weight, all else by tracing the model; warn of what cannot be held.

    Without an optimizer all that is in the model can be: nothing trains it.
    """
    names = {id(parameter): plain_name(name) for name, parameter in model.named_parameters()}
    trained = set(model.parameters() if optimizer is None else groups_of(optimizer))
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
    graph = _traced(model)
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
            "keep their weights for them"
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
        width = len(_active(leader))  # a norm over the places of [batch, places, channels] has another width
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
    if isinstance(bias, Tensor) and bias.numel() != len(_active(filters)):
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


def _active(filters: SparseLayer) -> Tensor:
    return FILTERS.units(filters, filters.mask)


def _warn(message: str, stacklevel: int = 5) -> None:
    """Warn at the line that calls ``sparsify``, which is ``stacklevel`` calls up from here."""
    warnings.warn(f"granet: pattern='filter': {message}", stacklevel=stacklevel)

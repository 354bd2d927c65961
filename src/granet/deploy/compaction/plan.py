"""What can be taken out of a model: channels that nothing needs, with all that makes them and reads them.

A channel is needed if it must stay, as an output of the model must, or if a product reads it with a weight that is not
zero for an output that is needed. A channel that is a constant need not be read: what it adds goes into the bias. Where
zeros are padded it adds less at the borders; there all constants of a product go into one of them, by its weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from granet.channels import Coupling, Exported, Read
from granet.channels.constants import State
from granet.channels.known import Known


@dataclass(frozen=True)
class Reader:
    """A product that reads channels, and what of them it need not read."""

    read: Read
    weight: str
    nonzero: Tensor
    """Whether each weight [outputs, inputs] is not zero."""
    values: Tensor
    """Of inputs that are constants; 0 for others."""
    free: Tensor
    """Inputs that it can do without."""
    merged: Tensor
    """Numbers of inputs that are constants of which one is enough, in place of all."""
    bias: str | None
    """The bias that takes what constants add; None if there is none yet."""

    @property
    def why(self) -> str:
        one = ", one in place of all constants since zeros are padded" if len(self.merged) else ""
        return f"{self.weight} reads them{one}"

    def needs(self, rows: Tensor | slice) -> Tensor:
        """The inputs that it needs for these outputs."""
        used = self.nonzero[rows].any(0) & ~self.free
        if len(self.merged):
            some = used[self.merged].any()
            used[self.merged] = False
            used[self.merged[0]] = some
        return used


@dataclass(frozen=True)
class Stays:
    """Filters that stay though they are zero, or nothing needs them, and why."""

    weight: str
    count: int
    why: str


@dataclass(frozen=True)
class Plan:
    """What stays of every parameter and buffer that something goes of."""

    kept: dict[str, tuple[Tensor | None, ...]]
    """The indices that stay along each dimension; None for all."""
    readers: list[tuple[Reader, Tensor]]
    """Products that lose inputs, each with a bool for each input: whether it stays."""
    sizes: dict[str, dict[int, set[int]]]
    """Of modules: sizes that operators in their forward have, and what they are now."""
    staying: list[Stays]
    gone: int
    """How many channels, of all tensors together."""


class Planner:
    def __init__(
        self,
        model: Exported,
        modules: dict[str, nn.Module],
        constants: dict[fx.Node, State],
        coupling: Coupling,
        multiple_of: int = 1,
    ) -> None:
        self._multiple_of = multiple_of
        self._model, self._coupling, self._constants = model, coupling, constants
        self._root, self._pinned = coupling.labels.groups()
        self._axes = list(
            {(axis.data_ptr(), len(axis), axis.stride()): axis for axis in coupling.every_axis()}.values()
        )
        self._readers = [reader for read in coupling.reads if (reader := self._reader(read, modules)) is not None]
        self.owners = list(dict.fromkeys(shaped.owner for shaped in coupling.shaped))
        """Modules in whose forward sizes may be written."""
        self._free = torch.ones(len(self._root), dtype=torch.bool)
        """What stays where any size may change."""

    def plan(self, frozen: Collection[str] = ()) -> Plan:
        """Take out as much as can be, but nothing that passes an operator with sizes in those modules."""
        why = dict(self._pinned)
        for shaped in self._coupling.shaped:
            if shaped.owner in frozen:
                for axis in shaped.axes:
                    if axis is not None:
                        told = f"{shaped.owner or 'the model'} does not run with fewer"
                        why.update(dict.fromkeys(set(self._root[axis].tolist()) - why.keys(), told))
        needed = torch.zeros(len(self._root), dtype=torch.bool)
        needed[list(why)] = True
        self._grow(needed, why)
        while empty := [roots for axis in self._axes if not needed[roots := self._root[axis]].any()]:
            last = int(empty[-1][0])  # what it reads is needed then, so layers before it may have one already
            needed[last] = True
            why[last] = "a layer keeps one"
            self._grow(needed, why)
        self._round_up(needed, why)
        stays = needed[self._root]
        if not frozen:
            self._free = stays
        return self._written(stays, why)

    def _grow(self, needed: Tensor, why: dict[int, str]) -> None:
        growing = True
        while growing:
            growing = False
            for reader in self._readers:
                outputs = reader.read.outputs
                rows = slice(None) if outputs is None else needed[self._root[outputs]]
                if reader.read.inputs is None:
                    continue
                roots = self._root[reader.read.inputs[reader.needs(rows)]]
                if not needed[roots].all():
                    growing = True
                    why.update(dict.fromkeys(roots[~needed[roots]].tolist(), reader.why))
                    needed[roots] = True

    def _round_up(self, needed: Tensor, why: dict[int, str]) -> None:
        """Keep more, until the widths of all parameters are round or nothing is gone of them.

        What is kept so needs nothing: it is a constant made by zeros, or what it puts out is read by zeros.
        """
        axes = [axis for axes in self._coupling.tensors.values() for axis in axes if axis is not None]
        growing = self._multiple_of > 1
        while growing:
            growing = False
            for roots in (self._root[axis] for axis in axes):
                while int(needed[roots].sum()) % self._multiple_of and not needed[roots].all():
                    root = int(roots[~needed[roots]][0])
                    needed[root] = growing = True
                    why[root] = f"widths are multiples of {self._multiple_of}"

    def _written(self, stays: Tensor, why: dict[int, str]) -> Plan:
        kept: dict[str, tuple[Tensor | None, ...]] = {}
        for name, axes in self._coupling.tensors.items():
            if any(axis is not None and not stays[axis].all() for axis in axes):
                kept[name] = tuple(
                    None if axis is None or stays[axis].all() else stays[axis].nonzero().flatten() for axis in axes
                )
        reading = [(reader, reader.read.inputs) for reader in self._readers]
        readers = [(reader, stays[inputs]) for reader, inputs in reading if inputs is not None]
        sizes: dict[str, dict[int, set[int]]] = {}
        for shaped in self._coupling.shaped:
            for axis, size in zip(shaped.axes, shaped.shape, strict=True):
                if axis is not None and not stays[axis].all():
                    sizes.setdefault(shaped.owner, {}).setdefault(size, set()).add(int(stays[axis].sum()))
        return Plan(
            kept=kept,
            readers=[(reader, left) for reader, left in readers if not left.all()],
            sizes=sizes,
            staying=list(self._staying(stays, why)),
            gone=int((~stays).sum()),
        )

    def _staying(self, stays: Tensor, why: dict[int, str]) -> Iterable[Stays]:
        for weight, reader in {reader.weight: reader for reader in self._readers}.items():
            if (outputs := reader.read.outputs) is None:
                continue
            useless = ~reader.nonzero.any(1) | ~self._free[outputs]
            roots = self._root[outputs[useless & stays[outputs]]].tolist()
            for reason, count in Counter(why[root] for root in roots).items():
                yield Stays(weight, count, reason)

    def _reader(self, read: Read, modules: dict[str, nn.Module]) -> Reader | None:
        product = read.product
        weight, x = self._constants[product.weight], self._constants[product.x]
        if not isinstance(weight, Known) or not isinstance(x, Known):
            return None
        sizes = tuple(product.weight.meta["val"].shape)
        there = product.matrix((~weight.zero).expand(sizes)).any(3)[0]
        inputs = x.along(product.axis, sizes[product.inputs])
        values = torch.where(inputs.where, inputs.value.double(), 0).cpu()
        where = inputs.where.cpu()
        zero = where & (values == 0)
        name, alone = self._alone(product.weight)
        bias, takes = self._bias(product.bias, name, modules)
        free, merged = zero, torch.arange(0)
        if alone and weight.all:
            if product.at_borders:
                merged = (where & ~zero).nonzero().flatten()
            elif takes:
                free = where
        return Reader(read, name, there.cpu(), values, free, merged, bias)

    def _alone(self, node: fx.Node) -> tuple[str, bool]:
        """The parameter that a weight is, and whether nothing else uses it."""
        name = self._model.name(node)
        if name is None:
            return str(node), False
        nodes = [other for other, its in self._model.tensors.items() if its == name]
        return name, sum(len(other.users) for other in nodes) == 1

    def _bias(self, node: fx.Node | None, weight: str, modules: dict[str, nn.Module]) -> tuple[str | None, bool]:
        """The bias that constants can be added to, and whether there is or can be one."""
        if node is not None:
            name, alone = self._alone(node)
            return name, alone
        owner, _, short = weight.rpartition(".")
        module = modules.get(owner)
        can = isinstance(module, nn.Linear | nn.modules.conv._ConvNd) and short == "weight" and module.bias is None
        return None, can

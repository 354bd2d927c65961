"""A copy of a model without the channels that a plan takes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from granet.deploy.compaction.heads import Mask, with_fewer_heads
from granet.deploy.compaction.plan import Plan


@torch.no_grad()
def shrink(model: nn.Module, plan: Plan, attributes: Callable[[str], bool], masks: Mapping[str, Mask]) -> nn.Module:
    """The smaller copy; of numbers that modules keep, those whose names these accept take on sizes that changed.

    The attentions among these masks are other modules if they have lost heads.
    """
    small = deepcopy(model)
    originals = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    first = {id(tensor): name for name, tensor in reversed(originals.items())}
    values = _new_values(plan, originals)
    owners: dict[str, None] = {}
    written: dict[str, Tensor] = {}
    for name, tensor in originals.items():
        source = first[id(tensor)]
        if source in values:
            _write(small, name, written.setdefault(source, _like(values[source], tensor)))
            owners[name.rpartition(".")[0]] = None
    for name in values.keys() - originals.keys():
        owner = name.rpartition(".")[0]
        _write(small, name, nn.Parameter(values[name], originals[_beside(name, "weight")].requires_grad))
    for owner in owners:
        _set_sizes(model.get_submodule(owner), small.get_submodule(owner))
    for owner, sizes in plan.sizes.items():
        if owner not in masks:
            _set_attributes(small.get_submodule(owner), sizes, attributes)
    with_fewer_heads(small, model, masks)
    return small


def _beside(name: str, short: str) -> str:
    """The name of another parameter of the same module."""
    return ".".join([*name.split(".")[:-1], short])


def _new_values(plan: Plan, originals: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of all tensors that change, by name; a bias that there was none of has one beside its weight's."""
    values: dict[str, Tensor] = {}
    for reader, stays in plan.readers:
        gone = (~stays & (reader.values != 0)).nonzero().flatten()
        if not len(gone) or reader.weight not in originals:
            continue
        weight, product = originals[reader.weight].detach(), reader.read.product
        gone = gone.to(weight.device)
        numbers = reader.values.to(weight.device)
        added = (product.matrix(weight.double())[0][:, gone] * numbers[gone, None]).sum(1)  # [outputs, kernel]
        if len(reader.merged):
            into = int(reader.merged[0])
            values[reader.weight] = values.get(reader.weight, weight).clone()
            column = values[reader.weight].select(product.inputs, into)
            column += (added / numbers[into]).view_as(column).to(column.dtype)
            continue
        name = reader.bias or _beside(reader.weight, "bias")
        total = added.sum(1)
        if name in originals:
            total += originals[name].detach().double()
        elif (rows := plan.kept.get(reader.weight)) is not None and (row := rows[product.out]) is not None:
            total = total[row.to(total.device)]
        values[name] = total.to(weight.dtype)
    for name, kept in plan.kept.items():
        value = values.get(name, originals[name].detach())
        for dim, indices in enumerate(kept):
            if indices is not None:
                value = value.index_select(dim, indices.to(value.device))
        values[name] = value
    return values


def _like(value: Tensor, before: Tensor) -> Tensor:
    """In the memory layout of what it comes from, and a parameter if that is one."""
    if before.ndim == 4 and before.is_contiguous(memory_format=torch.channels_last) and not before.is_contiguous():
        value = value.contiguous(memory_format=torch.channels_last)
    return nn.Parameter(value, before.requires_grad) if isinstance(before, nn.Parameter) else value


def _write(model: nn.Module, name: str, value: Tensor) -> None:
    owner, _, short = name.rpartition(".")
    module = model.get_submodule(owner)
    if isinstance(value, nn.Parameter):
        module._parameters[short] = value
    else:
        module._buffers[short] = value


def _set_sizes(before: nn.Module, after: nn.Module) -> None:
    """What modules of torch know of their sizes; of others, numbers that are a size of a parameter that changed."""
    weight: Any = after._parameters.get("weight")
    match after:
        case _ConvNd():
            outs, ins = (1, 0) if after.transposed else (0, 1)
            if after.groups > 1:
                after.groups = len(weight) * after.groups // len(before.weight)  # type: ignore[arg-type]
            after.out_channels = weight.shape[outs] * (after.groups if after.transposed else 1)
            after.in_channels = weight.shape[ins] * (1 if after.transposed else after.groups)
        case nn.Linear():
            after.out_features, after.in_features = weight.shape
        case nn.GroupNorm():
            after.num_groups = after.num_groups * len(weight) // after.num_channels
            after.num_channels = len(weight)
        case _NormBase():
            after.num_features = len(next(t for t in (after.running_mean, weight) if t is not None))
        case nn.Embedding():
            after.embedding_dim = weight.shape[1]
        case nn.PReLU():
            after.num_parameters = len(weight)
        case _:
            sizes: dict[int, set[int]] = {}
            for name, tensor in (*before._parameters.items(), *before._buffers.items()):
                now = {**after._parameters, **after._buffers}[name]
                if tensor is not None and now is not None:
                    for old, new in zip(tensor.shape, now.shape, strict=True):
                        sizes.setdefault(old, set()).add(new)
            _set_attributes(after, sizes, lambda _: True)


def _set_attributes(module: nn.Module, sizes: dict[int, set[int]], named: Callable[[str], bool]) -> None:
    for name in attributes_of(module, sizes):
        if named(name):
            setattr(module, name, next(iter(sizes[getattr(module, name)])))


def attributes_of(module: nn.Module, sizes: dict[int, set[int]]) -> Collection[str]:
    """Names of the numbers that a module keeps which are one of these sizes, if that can only be one new size."""
    return [
        name for name, value in vars(module).items()
        if type(value) is int and len(sizes.get(value, ())) == 1 and not name.startswith("_")
    ]  # fmt: skip

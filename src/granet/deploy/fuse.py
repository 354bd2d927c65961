"""Drafts become a plan: batch norms are folded into the layer before them, and what follows a layer joins it.

A batch norm after a convolution or linear layer that nothing else reads goes into its weight and bias, which are
multiplied in float64 and rounded once. Additions and activations that follow become part of the operator that they
follow, if only they read it. Equal weights are stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, fx

from granet.deploy.draft import Draft
from granet.deploy.operators import Activation, Add, Array, Conv, Linear, Op, Shape
from granet.deploy.plan import Plan

Drafts = dict[fx.Node, Draft]
"""By the node whose value they make, in the order they run in."""


def to_plan(drafts: Mapping[fx.Node, Draft], inputs: Mapping[fx.Node, Shape], outputs: Sequence[fx.Node]) -> Plan:
    """The plan that computes these outputs from these inputs."""
    joined = dict(drafts)
    used = _uses(joined, outputs)  # joining changes it for no value that is left
    for node in drafts:
        before = [source for source in joined[node].reads if source in joined and used[source] == 1]
        for source in before:
            if (both := _join(joined[source], joined[node], source)) is not None:
                joined[node] = both
                del joined[source]
                break
    return _numbered(joined, inputs, outputs)


def _uses(drafts: Drafts, outputs: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """How often each value is read; being an output counts."""
    used = dict.fromkeys(drafts, 0)
    for node in (*outputs, *(source for draft in drafts.values() for source in draft.reads)):
        if node in used:
            used[node] += 1
    return used


def _join(first: Draft, then: Draft, source: fx.Node) -> Draft | None:
    """One operator that does what `first` and then `then` do; None if there is none."""
    op = first.op
    if then.scales and isinstance(op, Conv | Linear) and not op.activation and len(first.reads) == 1:
        return _scaled(first, then)
    if isinstance(then.op, Activation) and isinstance(op, Conv | Linear | Add) and not op.activation:
        return replace(first, op=replace(op, activation=then.op.activation))
    if isinstance(then.op, Add) and isinstance(op, Conv) and not op.activation and len(first.reads) == 1:
        (other,) = [read for read in then.reads if read is not source]
        return replace(first, op=replace(op, residual=1, activation=then.op.activation), reads=(*first.reads, other))
    return None


def _scaled(first: Draft, scale: Draft) -> Draft:
    """w' = w s and b' = b s + t in each output channel."""
    factor, weight = scale.weight, first.weight
    assert factor is not None and weight is not None and scale.bias is not None
    factor, shift = factor.double(), scale.bias.double()
    weight = weight.double() * factor.view(-1, *[1] * (weight.ndim - 1))
    bias = shift if first.bias is None else first.bias.double() * factor + shift
    return replace(first, op=_with_bias(first.op), weight=weight, bias=bias)


def _with_bias(op: Op) -> Op:
    assert isinstance(op, Conv | Linear)
    return replace(op, bias=1)


def _numbered(drafts: Drafts, inputs: Mapping[fx.Node, Shape], outputs: Sequence[fx.Node]) -> Plan:
    values = {node: number for number, node in enumerate((*inputs, *drafts))}
    arrays: dict[bytes, Array] = {}
    ops = []
    for draft in drafts.values():
        places = [_place(tensor, arrays) for tensor in draft.arrays()]
        ops.append(_of_numbers(draft.op, [values[source] for source in draft.reads], places))
    return Plan(tuple(inputs.values()), tuple(ops), tuple(values[node] for node in outputs), tuple(arrays.values()))


def _of_numbers(op: Op, reads: Sequence[int], places: Sequence[int]) -> Op:
    match op:
        case Conv():
            weight, bias, residual = places[0], _second(places), _second(reads)
            return replace(op, source=reads[0], weight=weight, bias=bias, residual=residual)
        case Linear():
            return replace(op, source=reads[0], weight=places[0], bias=_second(places))
        case Add():
            return replace(op, source=reads[0], other=reads[1])
        case _:
            return replace(op, source=reads[0])


def _second(numbers: Sequence[int]) -> int | None:
    return numbers[1] if len(numbers) > 1 else None


def _place(tensor: Tensor, arrays: dict[bytes, Array]) -> int:
    """The number of an array with these elements, which may be there already."""
    array = Array.of(tensor.to(torch.float32).contiguous().numpy())
    digest = hashlib.sha256(repr((array.shape, array.positions is None)).encode())
    if array.positions is not None:
        digest.update(array.positions.data)
    digest.update(array.values.data)
    key = digest.digest()
    arrays.setdefault(key, array)
    return list(arrays).index(key)

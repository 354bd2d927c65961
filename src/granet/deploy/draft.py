"""Operators of a plan as they are read from a graph, before they are joined, folded and numbered.

`drafted` says for one node of a graph which operator it is, or that a plan has none for it. It is the only place that
knows PyTorch's operators.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from granet.deploy.constants import Constants
from granet.deploy.operators import Activation, AdaptivePool, Add, Conv, Flatten, Linear, Op, Pair, Pool, Shape, made_by

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Draft:
    """An operator. The numbers in `op` count its own values and weights only."""

    op: Op
    reads: tuple[fx.Node, ...]
    """The values: the source, and what is added."""
    weight: Tensor | None = None
    """A convolution or linear layer with a weight of one dimension scales each channel: a batch norm."""
    bias: Tensor | None = None

    @property
    def scales(self) -> bool:
        return self.weight is not None and self.weight.ndim == 1

    def arrays(self) -> list[Tensor]:
        """The weights as the operator reads them."""
        weight = self.weight
        if weight is not None and self.scales:
            weight = weight.view(-1, 1, 1, 1) if isinstance(self.op, Conv) else weight.diag()
        return [tensor for tensor in (weight, self.bias) if tensor is not None]


@dataclass(frozen=True)
class Same:
    """A node that gives what it is given."""

    source: fx.Node


def drafted(node: fx.Node, constants: Constants) -> Draft | Same | None:
    """What a node is in a plan; None if it must run in PyTorch."""
    if node.op != "call_function" or (shape := shape_of(node)) is None:
        return None
    read = _READERS.get(node.target)
    if read is None or node.kwargs.keys() - {"memory_format"}:
        return None
    found = read(_Call(node, constants))
    if isinstance(found, Same):
        return found if shape_of(found.source) == shape else None
    if found is None or any(shape_of(source) is None for source in found.reads):
        return None
    widths = _widths(found)
    try:
        made = made_by(found.op, [shape_of(source) or () for source in found.reads], widths)
    except ValueError:
        return None
    return found if made == shape else None


def shape_of(node: fx.Node) -> Shape | None:
    """The shape of what a node gives, if a plan can hold it."""
    value = node.meta.get("val")
    if isinstance(value, tuple | list) and node.target in _FIRST_OF_SEVERAL:
        value = value[0]
    if not isinstance(value, Tensor) or value.dtype != torch.float32 or value.layout != torch.strided:
        return None
    return tuple(value.shape) if all(isinstance(side, int) and side > 0 for side in value.shape) else None


def _widths(draft: Draft) -> list[Shape]:
    """The shapes of its weights, without making them."""
    weight, bias = draft.weight, draft.bias
    shapes = [] if weight is None else [tuple(weight.shape)]
    if weight is not None and draft.scales:
        width = len(weight)
        shapes = [(width, 1, 1, 1) if isinstance(draft.op, Conv) else (width, width)]
    return shapes if bias is None else [*shapes, tuple(bias.shape)]


class _Call:
    """A node's arguments by position, with the defaults of its operator."""

    def __init__(self, node: fx.Node, constants: Constants) -> None:
        self.node = node
        self._constants = constants
        schema = node.target._schema.arguments if hasattr(node.target, "_schema") else ()
        given = [*node.args, *(argument.default_value for argument in schema[len(node.args) :])]
        self.args: list[Any] = given

    def value(self, number: int) -> fx.Node | None:
        """An argument that is computed, not a constant."""
        argument = self.args[number]
        return argument if isinstance(argument, fx.Node) and not self._constants.has(argument) else None

    def weight(self, number: int) -> Tensor | None:
        """An argument that is a float32 constant."""
        argument = self.args[number]
        if not isinstance(argument, fx.Node) or not self._constants.has(argument):
            return None
        tensor = self._constants.value(argument)
        if tensor.dtype != torch.float32 or tensor.layout != torch.strided:
            return None
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"model: {self.name(number)!r} has values that are not finite")
        return tensor

    def name(self, number: int) -> str:
        """Of the parameter or buffer that is an argument."""
        return self._constants.name(self.args[number])


_Reader = Callable[[_Call], Draft | Same | None]


def _same(call: _Call) -> Same | None:
    source = call.value(0)
    return None if source is None else Same(source)


def _dropout(call: _Call) -> Same | None:
    return None if call.args[2] else _same(call)


def _convolution(call: _Call) -> Draft | None:
    _, _, _, stride, padding, dilation, groups = call.args
    return _convolved(call, Conv(0, 0, None, _pair(stride), _pair(padding), _pair(dilation), groups))


def _convolution_by_word(call: _Call) -> Draft | None:
    """Padding by the words ``valid`` and ``same``; the latter may need one more on one side, which no plan has."""
    _, _, _, stride, word, dilation, groups = call.args
    if (weight := call.weight(1)) is None:
        return None
    total = [d * (k - 1) if word == "same" else 0 for d, k in zip(_pair(dilation), weight.shape[2:], strict=True)]
    if any(sides % 2 for sides in total):
        return None
    padding = (total[0] // 2, total[1] // 2)
    return _convolved(call, Conv(0, 0, None, _pair(stride), padding, _pair(dilation), groups))


def _general_convolution(call: _Call) -> Draft | None:
    _, _, _, stride, padding, dilation, transposed, _, groups = call.args
    if transposed or not len(stride) == len(padding) == len(dilation) == 2:
        return None
    return _convolved(call, Conv(0, 0, None, _pair(stride), _pair(padding), _pair(dilation), groups))


def _convolved(call: _Call, op: Conv) -> Draft | None:
    return _weighted(op, call.value(0), call.weight(1), call, 2)


def _linear(call: _Call) -> Draft | None:
    return _weighted(Linear(0, 0), call.value(0), call.weight(1), call, 2)


def _product(call: _Call) -> Draft | None:
    """By a matrix [in, out]."""
    weight = call.weight(1)
    if weight is None or weight.ndim != 2 or (source := call.value(0)) is None:
        return None
    return Draft(Linear(0, 0), (source,), weight.t())


def _product_and_bias(call: _Call) -> Draft | None:
    beta, alpha = call.args[3:]
    weight = call.weight(2)
    if weight is None or weight.ndim != 2 or beta != 1 or alpha != 1:
        return None
    return _weighted(Linear(0, 0), call.value(1), weight.t(), call, 0)


def _weighted(op: Conv | Linear, source: fx.Node | None, weight: Tensor | None, call: _Call, at: int) -> Draft | None:
    bias = call.weight(at)
    if source is None or weight is None or (bias is None and call.args[at] is not None):
        return None
    return Draft(op if bias is None else replace(op, bias=1), (source,), weight, bias)


def _batch_norm(call: _Call) -> Draft | None:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias, in float64, as a factor and a summand of each channel."""
    named = call.node.target == aten.batch_norm.default
    weight, bias, mean, variance = (call.weight(number) for number in (1, 2, 3, 4))
    eps, training = (call.args[7], call.args[5]) if named else (call.args[6], False)
    source = call.value(0)
    missing = any(found is None and call.args[at] is not None for at, found in ((1, weight), (2, bias)))
    if source is None or mean is None or variance is None or training or missing or not _first_only(call.node):
        return None
    scale = (variance.double() + eps).rsqrt()
    if not bool(scale.isfinite().all()):
        raise ValueError(f"model: {call.name(4)!r} must be positive, as variances are")
    if weight is not None:
        scale = scale * weight
    shift = -mean.double() * scale
    if bias is not None:
        shift = shift + bias
    shape = shape_of(source) or ()
    op: Op = Conv(0, 0, 1, groups=len(scale)) if len(shape) == 4 else Linear(0, 0, 1)
    return Draft(op, (source,), scale, shift) if len(shape) in (2, 4) else None


def _max_pool(call: _Call) -> Draft | None:
    _, kernel, stride, padding, dilation, ceil = call.args
    if (source := call.value(0)) is None or _pair(dilation) != (1, 1) or not _first_only(call.node):
        return None
    return Draft(Pool(0, "max", _pair(kernel), _pair(stride or kernel), _pair(padding), ceil), (source,))


def _mean_pool(call: _Call) -> Draft | None:
    _, kernel, stride, padding, ceil, count_padding, divisor = call.args
    if (source := call.value(0)) is None or divisor is not None:
        return None
    op = Pool(0, "mean", _pair(kernel), _pair(stride or kernel), _pair(padding), ceil, count_padding)
    return Draft(op, (source,))


def _adaptive_pool(call: _Call) -> Draft | None:
    return None if (source := call.value(0)) is None else Draft(AdaptivePool(0, _pair(call.args[1])), (source,))


def _mean(call: _Call) -> Draft | None:
    """Over all positions of an image; `keep_mean_dimensions` has seen to it that they are kept."""
    _, dimensions, keep, dtype = call.args
    source = call.value(0)
    if source is None or not keep or dtype is not None or {number % 4 for number in dimensions or ()} != {2, 3}:
        return None
    return Draft(AdaptivePool(0, (1, 1)), (source,))


def _add(call: _Call) -> Draft | None:
    one, other = call.value(0), call.value(1)
    return Draft(Add(0, 1), (one, other)) if one is not None and other is not None and call.args[2] == 1 else None


def _relu(call: _Call) -> Draft | None:
    return None if (source := call.value(0)) is None else Draft(Activation(0, "relu"), (source,))


def _clamp(call: _Call) -> Draft | None:
    source, bounds = call.value(0), tuple(call.args[1:3])
    activation = {(0, None): "relu", (0, 6): "relu6"}.get(bounds if len(bounds) == 2 else (*bounds, None))
    return None if source is None or activation is None else Draft(Activation(0, activation), (source,))


def _reshape(call: _Call) -> Draft | Same | None:
    if (source := call.value(0)) is None or (old := shape_of(source)) is None:
        return None
    if (new := shape_of(call.node)) == old:
        return Same(source)
    return Draft(Flatten(0), (source,)) if new == (old[0], math.prod(old[1:])) else None


def _item(call: _Call) -> Same | None:
    source, number = call.node.args
    if number != 0 or not isinstance(source, fx.Node) or source.target not in _FIRST_OF_SEVERAL:
        return None
    return Same(source)


def _first_only(node: fx.Node) -> bool:
    """Whether of several results only the first is used."""
    return node.target not in _FIRST_OF_SEVERAL or all(user.args[1:] == (0,) for user in node.users)


def _pair(sides: int | Sequence[int]) -> Pair:
    return (sides, sides) if isinstance(sides, int) else (sides[0], sides[-1])


_FIRST_OF_SEVERAL = {
    aten._native_batch_norm_legit_no_training.default,
    aten.max_pool2d_with_indices.default,
}
"""Operators with several results, of which a plan has the first."""
_READERS: dict[Any, _Reader] = {
    aten.conv2d.default: _convolution,
    aten.conv2d.padding: _convolution_by_word,
    aten.convolution.default: _general_convolution,
    aten.linear.default: _linear,
    aten.addmm.default: _product_and_bias,
    aten.mm.default: _product,
    aten.matmul.default: _product,
    aten.batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten.max_pool2d.default: _max_pool,
    aten.max_pool2d_with_indices.default: _max_pool,
    aten.avg_pool2d.default: _mean_pool,
    aten.adaptive_avg_pool2d.default: _adaptive_pool,
    aten._adaptive_avg_pool2d.default: _adaptive_pool,
    aten.mean.dim: _mean,
    aten.add.Tensor: _add,
    aten.relu.default: _relu,
    aten.hardtanh.default: _clamp,
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.dropout.default: _dropout,
    aten.feature_dropout.default: _dropout,
    aten.clone.default: _same,
    aten.alias.default: _same,
    aten.contiguous.default: _same,
    aten.detach.default: _same,
    aten.reshape.default: _reshape,
    aten.flatten.using_ints: _reshape,
    aten.squeeze.dim: _reshape,
    aten.squeeze.dims: _reshape,
    operator.getitem: _item,
}

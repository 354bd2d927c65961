"""Constants on their way through a model: which elements of every tensor are known, from those of its parameters.

A rule says it for the output of an operator. What has no rule is not known. All rules hold for inputs of other sizes
than the example's as well: a batch or an image of another size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tag, Tensor, fx

from granet.channels.exported import Exported, argument, operator_of
from granet.channels.known import Known, constant, known, unknown
from granet.channels.products import Product, product_of

State = Known | tuple[Known | None, ...] | None
"""Of a node: its tensor, its tensors, or nothing where it is no tensor of floating-point numbers."""

SAME = {
    "clone", "contiguous", "alias", "detach", "dropout", "feature_dropout", "lift_fresh_copy", "to", "_to_copy",
    "native_dropout", "_unsafe_view_copy", "lift_fresh",
}  # fmt: skip
"""Their output is their input, maybe in another type."""
MOVES = {
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "permute", "transpose", "t", "movedim", "unsqueeze",
    "squeeze", "expand", "slice", "select", "split", "split_with_sizes", "chunk", "unbind", "cat", "stack", "flip",
    "roll", "index_select", "repeat", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "narrow",
    "constant_pad_nd", "pad", "numpy_T", "swapaxes", "adjoint",
}  # fmt: skip
"""Every element of their output is one of their inputs, or a number among their arguments."""
POOLS = {f"{kind}{n}d" for kind in ("max_pool", "adaptive_max_pool", "avg_pool", "adaptive_avg_pool") for n in "123"}
POOLS |= {"max_pool2d_with_indices", "max_pool3d_with_indices", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"}
POOLS |= {f"upsample_{kind}" for kind in ("nearest1d", "nearest2d", "nearest3d", "bilinear2d", "linear1d", "bicubic2d")}
POOLS |= {"upsample_trilinear3d", "_upsample_nearest_exact2d", "_upsample_bilinear2d_aa"}
"""Along the dimensions behind batch and channels, channel by channel; an average of equal numbers is that number."""
MEANS = {"mean", "amax", "amin"}
BATCH_NORMS = {"batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "cudnn_batch_norm"}


def find_constants(model: Exported, given: Mapping[str, Known] | None = None) -> dict[fx.Node, State]:
    """What is known of every tensor, from what is given of parameters and buffers; by default, all of their values."""
    values = {name: constant(value) for name, value in model.values.items()} if given is None else given
    return _Constants(model, values).states


class _Constants:
    def __init__(self, model: Exported, given: Mapping[str, Known]) -> None:
        self.states: dict[fx.Node, State] = {}
        self._devices = {value.value.device for value in given.values()}
        self._device = next(iter(self._devices), torch.device("cpu"))
        for node in model.nodes:
            name = model.name(node)
            if name is not None and name in given and model.values[name].is_floating_point():
                self.states[node] = given[name]
            else:
                self.states[node] = self._read(node)

    def of(self, node: Any) -> Known | None:
        state = self.states.get(node) if isinstance(node, fx.Node) else None
        return state if isinstance(state, Known) else None

    def _nothing(self, value: Any) -> State:
        if isinstance(value, Tensor):
            return unknown(value.ndim, self._device) if value.is_floating_point() else None
        if isinstance(value, list | tuple):
            return tuple(one if isinstance(one := self._nothing(each), Known) else None for each in value)
        return None

    def _read(self, node: fx.Node) -> State:
        nothing = self._nothing(node.meta.get("val"))
        if node.op != "call_function":
            return nothing
        name = operator_of(node)
        if name == "getitem":
            of = self.states.get(node.args[0])  # type: ignore[arg-type]
            return of[node.args[1]] if isinstance(of, tuple) else nothing  # type: ignore[index]
        sources = [self.of(source) for source in node.all_input_nodes]
        if nothing is None or not any(source is not None and source.any for source in sources):
            return nothing
        found = self._rule(node, name)
        if found is None:
            return nothing
        if isinstance(nothing, tuple) and isinstance(found, Known):
            return (found, *nothing[1:])
        return found

    def _rule(self, node: fx.Node, name: str) -> State:
        x = self.of(node.args[0]) if node.args else None
        if (product := product_of(node)) is not None:
            return self._product(product)
        if name in SAME:
            return x
        if name in MOVES:
            return self._moved(node)
        if name in ("bmm", "matmul", "mm"):
            return self._matmul(node)
        if name == "embedding" and x is not None:
            rows = x.only_along([0])
            return Known(rows.where.flatten(), rows.value.flatten()).full((*_shape(node)[:-1], rows.where.numel()))
        if name == "scaled_dot_product_attention":
            return self._attention(node)
        if name in ("layer_norm", "native_layer_norm"):
            return self._scaled(node, self.of(argument(node, 2, "weight")), self.of(argument(node, 3, "bias")), -1)
        if name in ("mul", "add", "sub", "div") or Tag.pointwise in getattr(node.target, "tags", ()):
            return self._pointwise(node, name)
        if x is None:
            return None
        if name in POOLS:
            return _pooled(node, name, x)
        if name in BATCH_NORMS:
            return self._batch_norm(node, x)
        if name == "group_norm":
            return self._group_norm(node, x)
        if name in MEANS or name == "sum":
            return _reduced(node, name, x)
        return None

    def _product(self, product: Product) -> Known | None:
        """A filter is known if it reads nothing that is not, apart from weights of zero."""
        x, weight = self.of(product.x), self.of(product.weight)
        bias = self.of(product.bias) if product.bias is not None else None
        if x is None or weight is None or (product.bias is not None and bias is None):
            return None
        inputs = x.along(product.axis, _shape(product.x)[product.axis])
        there = ~product.matrix(weight.zero.expand(_shape(product.weight)))
        reads = there.any(3)  # [groups, outputs, inputs]
        groups = inputs.where.view(product.groups, 1, -1)
        values = inputs.value.view(product.groups, 1, -1).double()
        adding = reads & groups & (values != 0)
        where = ~(reads & ~groups).any(2)
        if not weight.all or product.at_borders:
            where = where & ~adding.any(2)
        total = torch.zeros(where.shape, dtype=torch.float64, device=where.device)
        if weight.all and bool((where & adding.any(2)).any()):
            total = (product.matrix(weight.value.expand(_shape(product.weight))).double().sum(3) * values).sum(2)
        where, total = where.flatten(), total.flatten()
        if bias is not None:
            added = bias.along(0, len(where))
            where, total = where & added.where, total + added.value
        rank = len(_shape(product.node))
        shape = [1] * rank
        shape[product.axis] = len(where)
        return known(where.view(shape), total.view(shape))

    def _moved(self, node: fx.Node) -> State:
        """By moving what is known of the inputs in the same way."""

        def of(part: str) -> Callable[[fx.Node], Any]:
            def value(source: fx.Node) -> Any:
                state = self.of(source)
                if state is None:
                    return source.meta["val"]
                whole = _uniform_if_cut(node, state).full(_shape(source))
                return (whole.value if part == "value" else whole.where).double().contiguous()

            return value

        target: Any = node.target
        # An element that comes from an argument, as a pad does, is known: it is told by its being no input.
        try:
            values = target(*fx.map_arg(node.args, of("value")), **fx.map_arg(node.kwargs, of("value")))
            where = target(
                *_padded_with_one(node, fx.map_arg(node.args, of("where"))), **fx.map_arg(node.kwargs, of("where"))
            )
        except (RuntimeError, TypeError, IndexError):
            return None
        if isinstance(values, Tensor):
            return known(where.bool(), values)
        return tuple(known(one.bool(), value) for one, value in zip(where, values, strict=True))

    def _pointwise(self, node: fx.Node, name: str) -> Known | None:
        if Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return None
        rank = len(_shape(node))
        states = {source: self.of(source) for source in node.all_input_nodes}
        if any(state is None for state in states.values()):
            return None
        wide = {source: _to_rank(state, rank) for source, state in states.items() if state is not None}
        where = reduce(torch.logical_and, (state.where for state in wide.values()))
        if name == "mul":
            where = reduce(torch.logical_or, (state.zero for state in wide.values()), where)
        if not bool(where.any()):
            return None
        target: Any = node.target
        kwargs = {key: value for key, value in node.kwargs.items() if key not in ("dtype", "device", "layout")}
        try:
            value = target(
                *fx.map_arg(node.args, lambda source: wide[source].value.double()),
                **fx.map_arg(kwargs, lambda source: wide[source].value.double()),
            )
        except (RuntimeError, TypeError):
            return None
        return known(where, value)

    def _matmul(self, node: fx.Node) -> Known | None:
        """Zero where a whole row or column of a factor is."""
        left, right = self.of(node.args[0]), self.of(node.args[1])
        if left is None or right is None or left.where.ndim < 2 or right.where.ndim < 2:
            return None
        rank = len(_shape(node))
        rows = _to_rank(left, rank).zero.all(-1, keepdim=True)
        columns = _to_rank(right, rank).zero.all(-2, keepdim=True)
        where = rows | columns
        return known(where, torch.zeros(where.shape, dtype=torch.float64, device=where.device))

    def _attention(self, node: fx.Node) -> Known | None:
        """A mean of values that are alike is that value."""
        values = self.of(node.args[2])
        if values is None or argument(node, 4, "dropout_p", 0.0):
            return None
        alike = values.only_along([values.where.ndim - 2])
        heads = _shape(node)[-3] if values.where.ndim > 2 else 1
        if values.where.ndim > 2 and alike.where.shape[-3] not in (1, heads):
            repeats = heads // alike.where.shape[-3]
            return Known(alike.where.repeat_interleave(repeats, -3), alike.value.repeat_interleave(repeats, -3))
        return alike

    def _scaled(self, node: fx.Node, weight: Known | None, bias: Known | None, axis: int) -> Known | None:
        """A norm gives its bias where its factor is zero."""
        if weight is None or (bias is None and argument(node, 3, "bias") is not None):
            return None
        shift = bias if bias is not None else constant(torch.zeros([1] * weight.where.ndim, device=self._device))
        rank = len(_shape(node))
        where, value = _broadcast(weight.zero & shift.where, shift.value.double())
        shape = [1] * (rank - where.ndim) + list(where.shape)
        if axis == 1:
            shape = [1, -1] + [1] * (rank - 2)
        return known(where.reshape(shape), value.reshape(shape))

    def _batch_norm(self, node: fx.Node, x: Known) -> Known | None:
        if operator_of(node) != "_native_batch_norm_legit_no_training" and argument(node, 5, "training"):
            return None
        channels, rank = _shape(node.args[0])[1], x.where.ndim
        one = torch.ones((), dtype=torch.float64, device=self._device)
        weight, bias, mean, variance = (
            constant(default.expand(channels)) if node.args[place] is None else self.of(node.args[place])
            for place, default in ((1, one), (2, one * 0), (3, one * 0), (4, one))
        )
        if weight is None or bias is None or mean is None or variance is None:
            return None
        eps: float = argument(node, 6 if operator_of(node) == "_native_batch_norm_legit_no_training" else 7, "eps")
        shape = [1, -1] + [1] * (rank - 2)
        w, b, m, v = (
            Known(each.where.expand(channels).view(shape), each.value.double().expand(channels).view(shape))
            for each in (weight, bias, mean, variance)
        )
        still = x.zero & m.zero  # zeros stay zero whatever they are multiplied by
        silent = w.zero
        given = x.where & m.where & v.where & w.where
        value = torch.where(still | silent, 0, (x.value - m.value) * torch.rsqrt(v.value + eps) * w.value) + b.value
        return known((still | silent | given) & b.where, value)

    def _group_norm(self, node: fx.Node, x: Known) -> Known | None:
        weight, bias = self.of(argument(node, 2, "weight")), self.of(argument(node, 3, "bias"))
        quiet = self._scaled(node, weight, bias, 1)
        channels, groups = _shape(node)[1], int(node.args[1])  # type: ignore[arg-type]
        zero = x.along(1, channels).zero.view(groups, -1).all(1).repeat_interleave(channels // groups)
        shape = [1, -1] + [1] * (len(_shape(node)) - 2)
        shift = bias.along(0, channels) if bias is not None else None
        if argument(node, 3, "bias") is not None and shift is None:
            return quiet
        value = (
            shift.value.double()
            if shift is not None
            else torch.zeros(channels, dtype=torch.float64, device=zero.device)
        )
        where = zero if shift is None else zero & shift.where
        if quiet is not None:
            where = where | quiet.where.flatten()
        return known(where.view(shape), value.view(shape))


def _broadcast(where: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    shape = (where | value.bool()).shape
    return where.expand(shape), value.expand(shape)


def _shape(node: Any) -> tuple[int, ...]:
    value = node.meta["val"]
    return tuple(int(size) for size in (value[0] if isinstance(value, list | tuple) else value).shape)


def _to_rank(state: Known, rank: int) -> Known:
    more = (1,) * (rank - state.where.ndim)
    return Known(state.where.reshape(more + state.where.shape), state.value.reshape(more + state.value.shape))


def _pooled(node: fx.Node, name: str, x: Known) -> Known:
    rank = x.where.ndim
    spatial = range(rank - dimensions_of(name), rank)
    alike = x.only_along(list(spatial))
    if name.startswith("avg_pool"):
        padding = argument(node, 3, "padding", 0)
        padded = any(padding) if isinstance(padding, list | tuple) else padding
        if padded or argument(node, 6, "divisor_override"):
            return known(alike.zero, alike.value)
    return alike


def dimensions_of(name: str) -> int:
    """Of a pooling operator."""
    return next(int(letter) for letter in name if letter in "123")


def _reduced(node: fx.Node, name: str, x: Known) -> Known | None:
    dims = argument(node, 1, "dim")
    if dims is None or dims == []:
        return None
    dims = [dim % x.where.ndim for dim in (dims if isinstance(dims, list | tuple) else [dims])]
    keep = bool(argument(node, 2, "keepdim", False))
    alike = x.only_along(dims)  # of numbers that differ, the mean would be that of the example's size
    where, value = (alike.zero, alike.value) if name == "sum" else (alike.where, alike.value)
    where, value = _broadcast(where, value)
    if not keep:
        for dim in sorted(dims, reverse=True):
            where, value = where.squeeze(dim), value.squeeze(dim)
    return known(where, value)


def _uniform_if_cut(node: fx.Node, state: Known) -> Known:
    """Of a slice of something known, such as a table of positions, only what is the same for all slices.

    Another input may take another slice. One that goes nowhere but into products as their weight is always the same.
    """
    if operator_of(node) not in ("slice", "select", "narrow", "index_select", "split", "split_with_sizes", "chunk"):
        return state
    if not state.all or _only_a_weight(node):
        return state
    dim = int(argument(node, 2 if operator_of(node).startswith(("split", "chunk")) else 1, "dim", 0))
    return state.only_along([dim % state.where.ndim])


def _only_a_weight(node: fx.Node) -> bool:
    def takes(user: fx.Node) -> bool:
        if operator_of(user) in ("getitem", "t", "transpose", "permute", "clone", "squeeze", "view"):
            return _only_a_weight(user)
        product = product_of(user)
        return product is not None and product.x is not node

    return bool(node.users) and all(takes(user) for user in node.users)


def _padded_with_one(node: fx.Node, arguments: Iterable[Any]) -> list[Any]:
    """What pads is known."""
    listed = list(arguments)
    name = operator_of(node)
    if name == "constant_pad_nd":
        listed[2:] = [1.0]
    elif name == "pad" and argument(node, 2, "mode", "constant") == "constant":
        listed[2:] = ["constant", 1.0]
    return listed

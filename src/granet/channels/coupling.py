"""Which channels of a model's tensors belong together, so that one cannot be taken out without the others.

Labels travel from operator to operator: a residual addition ties those of its terms, a concatenation puts them one
after another, a depthwise convolution ties what it reads to what it puts out, a view into heads makes one of each
head's. What an operator without a rule reads has to stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tag, Tensor, fx

from granet.channels.constants import BATCH_NORMS, MEANS, POOLS, SAME, dimensions_of
from granet.channels.coupled import Coupling, Read, Shaped
from granet.channels.dimensions import picked
from granet.channels.exported import Exported, argument, operator_of, owner_of, shape_of
from granet.channels.labels import Axes, Axis
from granet.channels.products import Product, product_of

_IGNORED = {"sym_size", "_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range", "getitem"}
_VIEWS = {"view", "_unsafe_view", "reshape", "flatten", "unflatten"}
_ALONG_ONE = {"softmax", "_softmax", "log_softmax", "_log_softmax", "cumsum", "safe_softmax", "_safe_softmax"}
_POINTWISE = {"add", "sub", "mul", "div", "where", "masked_fill"}


def couple(model: Exported) -> Coupling:
    """Follow the channels through all operators."""
    reader = _Reader(model)
    for node in model.nodes:
        reader.read(node)
    return reader.found


class _Reader:
    def __init__(self, model: Exported) -> None:
        self._model = model
        self.found = Coupling()
        self._labels = self.found.labels

    def read(self, node: fx.Node) -> None:
        if node.op == "output":
            for source in node.all_input_nodes:
                self._pin(source, "the model returns them")
            return
        name = self._model.name(node)
        if name is not None:
            if name not in self.found.tensors:
                self.found.tensors[name] = tuple(self._labels.fresh(size) for size in self._model.values[name].shape)
            self.found.nodes[node] = self.found.tensors[name]
            return
        operator = operator_of(node)
        axes = self._axes(node, operator)
        if axes is None:
            if operator not in _IGNORED and node.op == "call_function":
                for source in node.all_input_nodes:
                    self._pin(source, f"{operator} reads them")
            axes = _nothing(node.meta.get("val"))
        if axes is not None:
            self.found.nodes[node] = axes
            self._note_sizes(node, operator, axes)

    def _of(self, node: Any) -> Axes:
        axes = self.found.nodes.get(node) if isinstance(node, fx.Node) else None
        return () if axes is None or any(isinstance(axis, tuple) for axis in axes) else axes  # type: ignore[return-value]

    def _pin(self, node: Any, why: str) -> None:
        for axis in self.found.nodes.get(node, ()):
            for one in axis if isinstance(axis, tuple) else (axis,):
                self._labels.pin(one, why)

    def _note_sizes(self, node: fx.Node, operator: str, axes: Any) -> None:
        if operator in _VIEWS | {"split", "split_with_sizes", "chunk", "slice", "expand", "getitem"}:
            pairs = [(node, axes), *((source, self._of(source)) for source in node.all_input_nodes)]
            for one, labels in pairs:
                shape = shape_of(one)
                if shape is not None and any(isinstance(axis, Tensor) for axis in labels):
                    self.found.shaped.append(Shaped(owner_of(node), labels, shape))

    def _axes(self, node: fx.Node, operator: str) -> Any:
        if (product := product_of(node)) is not None:
            return self._product(product)
        if operator == "getitem":
            source = self.found.nodes.get(node.args[0])  # type: ignore[arg-type]
            place: Any = node.args[1]
            return source[place] if source and isinstance(source[place], tuple) else None
        x = self._of(node.args[0]) if node.args else ()
        shape = shape_of(node)
        rule = getattr(self, f"_{operator}", None) if operator in _RULES else None
        if rule is not None:
            return rule(node, x, shape)
        if operator in SAME or operator in POOLS:
            if operator in POOLS:
                kept = len(x) - dimensions_of(operator)
                for axis in x[kept:]:
                    self._labels.pin(axis, f"{operator} goes along them")
                x = (*x[:kept], *([None] * (len(x) - kept)))
            return x if isinstance(node.meta.get("val"), Tensor) else (x, (None,) * len(x))
        if operator in _VIEWS and shape is not None:
            old = shape_of(node.args[0])
            if old is None or 0 in old:
                return None
            return self._labels.reshape(x, old, shape, picked(node), f"{operator} mixes them with others")
        if operator in BATCH_NORMS:
            return self._batch_norm(node, x)
        if operator in MEANS or operator in ("sum", "any", "all"):
            return self._reduce(node, x, operator)
        if operator in _ALONG_ONE:
            return self._along(x, int(argument(node, 1, "dim")), operator)
        if operator in ("bmm", "matmul", "baddbmm"):
            return self._matmul(node)
        if operator in _POINTWISE or Tag.pointwise in getattr(node.target, "tags", ()):
            return self._broadcast(node.all_input_nodes, shape, operator)
        return None

    def _product(self, product: Product) -> Axes | None:
        x, weight = self._of(product.x), self._of(product.weight)
        if not weight or not x:
            return None
        outputs, inputs, read = weight[product.out], weight[product.inputs], x[product.axis]
        for axis in weight[2:]:
            self._labels.pin(axis, "they are a kernel's")
        name = self._model.name(product.weight) or "a product"
        if product.groups == 1:
            self._labels.tie(read, inputs, f"{name} reads what cannot be cut")
            self.found.reads.append(Read(product, read, outputs))
        else:
            outputs = self._grouped(product, read, outputs, inputs, name)
        if product.bias is not None:
            for axis in self._of(product.bias):
                outputs = self._labels.tie(outputs, axis, "a bias is added that cannot be cut")
        kernel = len(weight) > 2
        for place, axis in enumerate(x):
            if kernel and place > product.axis:
                self._labels.pin(axis, f"{name} goes along them")
        return tuple(
            outputs if place == product.axis else None if kernel and place > product.axis else axis
            for place, axis in enumerate(x)
        )

    def _grouped(self, product: Product, read: Axis, outputs: Axis, inputs: Axis, name: str) -> Axis:
        """Whole groups go, with all that they read and put out."""
        within = outputs if product.transposed else inputs
        self._labels.pin(within, f"{name} has them in every group")
        across = inputs if product.transposed else outputs
        width = shape_of(product.node)
        assert width is not None
        made = self._labels.fresh(width[product.axis]) if product.transposed else across
        if read is None or made is None or across is None:
            for axis in (read, made, across):
                self._labels.pin(axis, f"{name} reads what cannot be cut")
            return made
        for axis in {id(one): one for one in (read, made, across)}.values():
            rows = axis.view(product.groups, -1)
            self._labels.together(rows)
            self._labels.tie(read.view(product.groups, -1)[:, 0], rows[:, 0], "")
        return made

    def _batch_norm(self, node: fx.Node, x: Axes) -> Any:
        if len(x) < 2:
            return None
        channels = x[1]
        for place in range(1, 5):
            for axis in self._of(node.args[place]):
                channels = self._labels.tie(channels, axis, "a norm has them that cannot be cut")
        axes = (x[0], channels, *x[2:])
        return axes if isinstance(node.meta.get("val"), Tensor) else (axes, (None,), (None,))

    def _reduce(self, node: fx.Node, x: Axes, operator: str) -> Axes | None:
        dims: Any = argument(node, 1, "dim")
        if dims is None or dims == [] or not isinstance(node.meta.get("val"), Tensor):
            return None
        gone = {dim % len(x) for dim in (dims if isinstance(dims, list | tuple) else [dims])}
        for place in gone:
            self._labels.pin(x[place], f"{operator} goes along them")
        if argument(node, 2, "keepdim", False):
            return tuple(None if place in gone else axis for place, axis in enumerate(x))
        return tuple(axis for place, axis in enumerate(x) if place not in gone)

    def _along(self, x: Axes, dim: int, operator: str) -> Axes:
        self._labels.pin(x[dim], f"{operator} goes along them")
        return tuple(None if place == dim % len(x) else axis for place, axis in enumerate(x))

    def _matmul(self, node: fx.Node) -> Axes | None:
        *added, left, right = node.args[:3] if operator_of(node) == "baddbmm" else node.args[:2]
        a, b, shape, sizes = self._of(left), self._of(right), shape_of(node), [shape_of(left), shape_of(right)]
        if sizes[0] is None or sizes[1] is None or shape is None or min(len(a), len(b)) < 2:
            return None
        self._labels.pin(a[-1], "two activations are multiplied along them")
        self._labels.pin(b[-2], "two activations are multiplied along them")
        batch = self._tied([(a[:-2], sizes[0][:-2]), (b[:-2], sizes[1][:-2])], shape[:-2], "matmul")
        product: Axes = (*batch, a[-2], b[-1])
        return self._tied(
            [(product, shape), *((self._of(one), shape_of(one) or ()) for one in added)], shape, "baddbmm"
        )

    def _broadcast(self, sources: Sequence[fx.Node], shape: tuple[int, ...] | None, operator: str) -> Axes | None:
        if shape is None:
            return None
        sized = [(self._of(source), shape_of(source)) for source in sources]
        return self._tied([(axes, size) for axes, size in sized if size is not None], shape, operator)

    def _tied(self, sources: Sequence[tuple[Axes, Sequence[int]]], shape: Sequence[int], operator: str) -> Axes:
        """Tensors that are broadcast to one shape, dimension by dimension from the last."""
        made: list[Axis] = []
        for back in range(1, len(shape) + 1):
            there = [axes[-back] for axes, sizes in sources if len(sizes) >= back and sizes[-back] == shape[-back] > 1]
            if there:
                for axis in there[1:]:
                    self._labels.tie(there[0], axis, f"{operator} has them with what cannot be cut")
            made.append(there[0] if there and all(axis is not None for axis in there) else None)
        return tuple(reversed(made))

    def _scaled_dot_product_attention(self, node: fx.Node, query: Axes, shape: Any) -> Axes:
        key, value = self._of(node.args[1]), self._of(node.args[2])
        for axis, why in (
            (query[-1], "their number scales"),
            (key[-1], "their number scales"),
            (query[-2], "are places"),
        ):
            self._labels.pin(axis, f"{why} in scaled_dot_product_attention")
        for axis in (key[-2], value[-2]):
            self._labels.pin(axis, "scaled_dot_product_attention goes along them")
        heads = list(query[:-2])
        mask = argument(node, 3, "attn_mask")
        sources: list[tuple[Axes, Any]] = [
            (axes, shape_of(source)) for axes, source in ((key, node.args[1]), (value, node.args[2]))
        ]
        if isinstance(mask, fx.Node):
            sources.append((self._of(mask), shape_of(mask)))
        for axes, sizes in sources:
            for place in range(len(heads)):
                back = place - len(heads) - 2
                if len(sizes) < -back or sizes[back] == 1:
                    continue
                axis = axes[back]
                if axis is not None and sizes[back] != shape[place]:
                    axis = axis.repeat_interleave(shape[place] // sizes[back])  # heads that share keys and values
                self._labels.tie(heads[place], axis, "attention has them with what cannot be cut")
                heads[place] = heads[place] if axis is not None else None
        return (*heads, None, value[-1])

    def _layer_norm(self, node: fx.Node, x: Axes, shape: Any) -> Any:
        count = len(node.args[1])  # type: ignore[arg-type]
        why = f"{operator_of(node)} goes along them"
        for axis in x[-count:]:
            self._labels.pin(axis, why)
        for source in node.all_input_nodes[1:]:
            self._pin(source, why)
        axes = (*x[:-count], *([None] * count))
        return axes if isinstance(node.meta.get("val"), Tensor) else (axes, axes, axes)

    def _group_norm(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        channels = x[1]
        for place in (2, 3):
            for axis in self._of(argument(node, place, "weight" if place == 2 else "bias")):
                channels = self._labels.tie(channels, axis, "a norm has them that cannot be cut")
        if channels is not None:
            self._labels.together(channels.view(int(node.args[1]), -1))  # type: ignore[arg-type]
        return (x[0], channels, *x[2:])

    def _pad(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        """From the last dimension on, two numbers for each."""
        amounts: Any = node.args[1]
        padded = {len(x) - 1 - place // 2 for place, amount in enumerate(amounts) if amount}
        for place in padded:
            self._labels.pin(x[place], "others are put beside them")
        return tuple(None if place in padded else axis for place, axis in enumerate(x))

    _constant_pad_nd = _pad

    def _embedding(self, node: fx.Node, table: Axes, shape: Any) -> Axes:
        self._labels.pin(table[0], "they are rows of a table")
        return (*([None] * (len(shape) - 1)), table[1])

    def _permute(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        return tuple(x[dim] for dim in argument(node, 1, "dims"))

    def _transpose(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        moved = list(x)
        one, other = int(node.args[1]), int(node.args[2])  # type: ignore[arg-type]
        moved[one], moved[other] = moved[other], moved[one]
        return tuple(moved)

    def _t(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        return x[::-1]

    def _unsqueeze(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        place = int(node.args[1]) % (len(x) + 1)  # type: ignore[arg-type]
        return (*x[:place], None, *x[place:])

    def _squeeze(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        sizes = shape_of(node.args[0])
        assert sizes is not None
        dims = argument(node, 1, "dim", list(range(len(x))))
        gone = {dim % len(x) for dim in (dims if isinstance(dims, list | tuple) else [dims])}
        return tuple(axis for place, axis in enumerate(x) if place not in gone or sizes[place] != 1)

    def _expand(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        return (*([None] * (len(shape) - len(x))), *x)

    def _slice(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        dim = int(argument(node, 1, "dim", 0)) % len(x)
        begin, end, step = (argument(node, *each) for each in ((2, "start"), (3, "end"), (4, "step", 1)))
        axis = x[dim]
        return (*x[:dim], None if axis is None else axis[begin:end:step], *x[dim + 1 :])

    def _select(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        dim = int(node.args[1]) % len(x)  # type: ignore[arg-type]
        self._labels.pin(x[dim], "one is picked by its number")
        return (*x[:dim], *x[dim + 1 :])

    def _unbind(self, node: fx.Node, x: Axes, shape: Any) -> tuple[Axes, ...]:
        dim = int(argument(node, 1, "dim", 0)) % len(x)
        self._labels.pin(x[dim], "they are picked one by one")
        return ((*x[:dim], *x[dim + 1 :]),) * len(node.meta["val"])

    def _split(self, node: fx.Node, x: Axes, shape: Any) -> tuple[Axes, ...]:
        dim = int(argument(node, 2, "dim", 0)) % len(x)
        sizes = [int(piece.shape[dim]) for piece in node.meta["val"]]
        axis = x[dim]
        pieces = [None] * len(sizes) if axis is None else torch.split(axis, sizes)
        return tuple((*x[:dim], piece, *x[dim + 1 :]) for piece in pieces)

    _split_with_sizes = _chunk = _split

    def _cat(self, node: fx.Node, x: Axes, shape: Any) -> Axes:
        parts: Any = node.args[0]
        dim = int(argument(node, 1, "dim", 0)) % len(shape)
        made = list(self._tied([(self._but(part, dim), shape_of(part)) for part in parts], shape, "cat"))  # type: ignore[misc]
        pieces = []
        for part in parts:
            axis, size = self._of(part)[dim], shape_of(part)[dim]  # type: ignore[index]
            if axis is None:
                axis = self._labels.staying(size, "cat has them with what cannot be cut")
            pieces.append(axis)
        labelled = any(self._of(part)[dim] is not None for part in parts)
        made[dim] = torch.cat(pieces) if labelled else None
        return tuple(made)

    def _but(self, node: fx.Node, dim: int) -> Axes:
        return tuple(None if place == dim else axis for place, axis in enumerate(self._of(node)))


_RULES = {
    "scaled_dot_product_attention", "layer_norm", "group_norm", "embedding", "permute", "transpose", "t", "unsqueeze",
    "squeeze", "expand", "slice", "select", "unbind", "split", "split_with_sizes", "chunk", "cat", "pad",
    "constant_pad_nd",
}  # fmt: skip


def _nothing(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (None,) * value.ndim
    if isinstance(value, list | tuple):
        return tuple(_nothing(one) or () for one in value)
    return None

"""The operators that multiply by a weight: convolutions and linear layers, however they are called."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, fx

from granet.channels.exported import argument, operator_of, shape_of


@dataclass(frozen=True)
class Product:
    """``x`` times a weight, plus a bias."""

    node: fx.Node
    x: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    axis: int
    """The dimension of the channels, in what is read and in what is put out."""
    out: int
    """The dimension of the weight that is the outputs; in a transposed convolution with groups, those of one group."""
    inputs: int
    """The one that is the inputs; in other convolutions with groups, those of one group."""
    groups: int = 1
    transposed: bool = False
    at_borders: bool = False
    """Whether outputs at the borders read fewer inputs than others do, as where zeros are padded."""

    def matrix(self, weight: Tensor) -> Tensor:
        """A weight as [groups, outputs of a group, inputs of a group, kernel]."""
        rows = weight.movedim((self.out, self.inputs), (0, 1)).flatten(2) if weight.ndim > 2 else None
        if rows is None:
            rows = (weight if self.out == 0 else weight.t()).unsqueeze(2)
        if self.transposed:
            return torch.unflatten(rows, 1, (self.groups, -1)).transpose(0, 1)
        return torch.unflatten(rows, 0, (self.groups, -1))


_CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "convolution"}
_TRANSPOSED = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}


def product_of(node: fx.Node) -> Product | None:
    """The product that an operator is, if it is one."""
    name = operator_of(node)
    if name in _CONVOLUTIONS | _TRANSPOSED:
        return _convolution(node, name)
    match name:
        case "linear":
            x, weight, bias, out = node.args[0], node.args[1], argument(node, 2, "bias"), 0
        case "addmm" if not node.kwargs:
            bias, x, weight, out = node.args[0], node.args[1], node.args[2], 1
        case "mm" | "matmul":
            x, weight, bias, out = node.args[0], node.args[1], None, 1
        case _:
            return None
    if not (isinstance(x, fx.Node) and isinstance(weight, fx.Node)):
        return None
    shape, sizes = shape_of(x), shape_of(weight)
    if shape is None or sizes is None or len(sizes) != 2 or not shape:
        return None
    if isinstance(bias, fx.Node) and shape_of(bias) != (sizes[out],):
        return None
    return Product(node, x, weight, bias, len(shape) - 1, out, 1 - out)


def _convolution(node: fx.Node, name: str) -> Product | None:
    x, weight = node.args[0], node.args[1]
    if not (isinstance(x, fx.Node) and isinstance(weight, fx.Node)):
        return None
    shape, sizes = shape_of(x), shape_of(weight)
    if shape is None or sizes is None:
        return None
    transposed = name in _TRANSPOSED
    if name == "convolution":
        transposed, groups = bool(node.args[6]), argument(node, 8, "groups")
    else:
        groups = argument(node, 6, "groups", 1)
    padding = argument(node, 4, "padding", 0)
    padded = padding != "valid" and (isinstance(padding, str) or any(_several(padding)))
    uneven = transposed and any(size > 1 for size in sizes[2:])
    axis = len(shape) - len(sizes) + 1
    out, inputs = (1, 0) if transposed else (0, 1)
    return Product(
        node, x, weight, argument(node, 2, "bias"), axis, out, inputs, int(groups), transposed, padded or uneven
    )


def _several(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]

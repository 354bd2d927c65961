"""The 3x3 convolutions of a model, computed in faster ways where there are some."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from granet.training import narrow

TINY = (2, 2)


class FastConvolutions(TorchFunctionMode):
    """In this context, narrow convolutions and those of tiny images are computed in bfloat16, in ways of our own."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.conv2d and not kwargs and _is_plain(*args):
            images, weight, _, (stride, _), *_ = args
            if stride == 1 and images.shape[2:] == TINY:
                return tiny_convolution(images.to(torch.bfloat16), weight.to(torch.bfloat16))
            if narrow.is_narrow(images, weight):
                return narrow.convolution(images.to(torch.bfloat16), weight.to(torch.bfloat16), stride)
        return func(*args, **(kwargs or {}))


def _is_plain(images: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> bool:
    """3x3 with a border of one, as ``nn.Conv2d`` calls it."""
    plain = bias is None and groups == 1 and (padding, dilation) == ((1, 1), (1, 1)) and stride in ((1, 1), (2, 2))
    return plain and images.ndim == 4 and weight.shape[2:] == (3, 3)


def tiny_convolution(images: Tensor, weight: Tensor) -> Tensor:
    """3x3, with a border of one, of 2x2 images: one matrix product.

    Wherever the kernel stands, all four pixels are under four of its nine taps. So an image is one row, and the matrix
    has these four taps for each of the four places. A convolution has all nine, five of them over zeros of the border.
    """
    outputs, inputs = weight.shape[:2]
    places = [weight[:, :, 1 - line : 3 - line, 1 - column : 3 - column] for line in (0, 1) for column in (0, 1)]
    matrix = torch.stack(places).permute(0, 1, 3, 4, 2).reshape(4 * outputs, 4 * inputs)
    rows = images.permute(0, 2, 3, 1).reshape(len(images), 4 * inputs)
    return functional.linear(rows, matrix).view(len(images), *TINY, outputs).permute(0, 3, 1, 2)

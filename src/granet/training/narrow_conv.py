"""3x3 convolutions with few channels on kernels of our own: without them a step takes up to 66 % longer (ResNet-20)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

CHANNELS = (16, 32, 64)
"""Numbers of input and output channels for which our kernels may be faster."""
COLOURS = 3
FEW_PIXELS = 16 * 16
"""With 64 input and output channels ours are faster only for images up to this size."""


class NarrowConvolutions(TorchFunctionMode):
    """In this context, 3x3 convolutions with few channels that autocast would run in bfloat16 run on our kernels."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.conv2d and len(args) == 7 and _is_plain(*args) and _is_narrow(*args[:2]):
            images, weight, _, (stride, _), *_ = args
            return convolution(images.to(torch.bfloat16), weight.to(torch.bfloat16), stride)
        return func(*args, **(kwargs or {}))


def _is_plain(images: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> bool:
    """3x3 with a border of one, as ``nn.Conv2d`` calls it."""
    cast = torch.is_autocast_enabled(images.device.type) and images.dtype in (torch.float32, torch.bfloat16)
    plain = bias is None and groups == 1 and (padding, dilation) == ((1, 1), (1, 1)) and stride in ((1, 1), (2, 2))
    return cast and plain and images.ndim == 4 and weight.shape[2:] == (3, 3)


def _is_narrow(images: Tensor, weight: Tensor) -> bool:
    outputs, inputs = weight.shape[:2]
    pixels = images.shape[2] * images.shape[3]
    if len(images) * pixels * max(inputs, outputs) >= 2**31:
        return False  # positions are 32-bit integers
    if inputs == COLOURS:  # the first of a network: its images need no gradient
        return outputs in CHANNELS and not images.requires_grad
    wide = inputs == outputs == CHANNELS[-1]
    return inputs in CHANNELS and outputs in CHANNELS and not (wide and pixels > FEW_PIXELS)


@torch.library.custom_op("granet::narrow_convolution", mutates_args=())
def convolution(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    """3x3, with a border of one."""
    from granet.training import narrow_conv_triton

    conv = _conv(images.shape, weight.shape, stride)
    out = _empty(images, (len(images), conv.outputs, conv.out_height, conv.out_width))
    narrow_conv_triton.forward(_last(images), _last(weight), out, conv)
    return out


@torch.library.custom_op("granet::narrow_input_gradient", mutates_args=())
def _input_gradient(gradient: Tensor, weight: Tensor, height: int, width: int, stride: int) -> Tensor:
    from granet.training import narrow_conv_triton

    shape = (len(gradient), weight.shape[1], height, width)
    out = _empty(gradient, shape)
    narrow_conv_triton.input_gradient(_last(gradient), _last(weight), out, _conv(shape, weight.shape, stride))
    return out


@torch.library.custom_op("granet::narrow_weight_gradient", mutates_args=())
def _weight_gradient(images: Tensor, gradient: Tensor, stride: int) -> Tensor:
    """[parts, outputs, 3, 3, inputs], which add up to it."""
    from granet.training import narrow_conv_triton

    outputs, inputs = gradient.shape[1], images.shape[1]
    parts = _parts(images, gradient, stride)
    conv = _conv(images.shape, (outputs, inputs, 3, 3), stride)
    narrow_conv_triton.weight_gradient(_last(images), _last(gradient), parts, conv)
    return parts


@convolution.register_fake
def _(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    height, width = ((size - 1) // stride + 1 for size in images.shape[2:])
    return _empty(images, (len(images), len(weight), height, width))


@_input_gradient.register_fake
def _(gradient: Tensor, weight: Tensor, height: int, width: int, stride: int) -> Tensor:
    return _empty(gradient, (len(gradient), weight.shape[1], height, width))


def _parts(images: Tensor, gradient: Tensor, stride: int) -> Tensor:
    from granet.training.narrow_conv_triton import parts_of

    parts = parts_of(gradient.numel() // gradient.shape[1])
    shape = (parts, gradient.shape[1], 3, 3, images.shape[1])
    return torch.empty(shape, dtype=torch.float32, device=images.device)


_weight_gradient.register_fake(_parts)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
    images, weight, ctx.stride = inputs
    ctx.save_for_backward(images, weight)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    images, weight = ctx.saved_tensors
    of_images = of_weight = None
    if ctx.needs_input_grad[0]:
        of_images = _input_gradient(gradient, weight, *images.shape[2:], ctx.stride)
    if ctx.needs_input_grad[1]:
        parts = _weight_gradient(images, gradient, ctx.stride)
        of_weight = parts.sum(0).to(weight.dtype).permute(0, 3, 1, 2)
    return of_images, of_weight, None


convolution.register_autograd(_backward, setup_context=_keep)


def _conv(images: Any, weight: Any, stride: int) -> Any:
    from granet.training.narrow_conv_triton import Conv

    (_, _, height, width), (outputs, inputs, *_) = images, weight
    return Conv(height, width, (height - 1) // stride + 1, (width - 1) // stride + 1, stride, inputs, outputs)


def _empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)

"""Convolutions with few channels as Triton kernels, the gain of ``narrow_conv``: 3x3, border of one, channels last.

Libraries are made for wide layers; with 16 to 64 channels they take far longer than reading the images does. Here a
program holds some pixels with all their channels, and adds up nine small matrix products, one for each tap (position in
the kernel). The three colours of an image are too few for a product, so there all taps are in one. Weights lie as
[outputs, taps, inputs]. Sums are float32, in an order that never changes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCKS = (64, 128)
"""Pixels that a program holds at a time: the more there are, the less often weights are read."""
PROGRAMS = 256
"""How many programs there should be, if there are enough pixels: about two for each multiprocessor of a large GPU."""

SMALLEST = 16
"""The least number of channels that a matrix product needs."""


class Conv(NamedTuple):
    """The sizes of an image, before and after, and the channels."""

    height: int
    width: int
    out_height: int
    out_width: int
    stride: int
    inputs: int
    outputs: int


@triton.jit
def _source(pixel, tap, CONV: tl.constexpr):
    """Which pixel of the input is under that tap of a pixel of the output, and whether it is not in the border."""
    line = (pixel // CONV.out_width) % CONV.out_height * CONV.stride + tap // 3 - 1
    column = pixel % CONV.out_width * CONV.stride + tap % 3 - 1
    inside = (line >= 0) & (line < CONV.height) & (column >= 0) & (column < CONV.width)
    image = pixel // (CONV.out_height * CONV.out_width)
    return (image * CONV.height + line) * CONV.width + column, inside


@triton.jit
def _target(pixel, tap, CONV: tl.constexpr):
    """The other way round: which pixel of the output has that pixel of the input under that tap, if there is one."""
    line = (pixel // CONV.width) % CONV.height + 1 - tap // 3
    column = pixel % CONV.width + 1 - tap % 3
    there = (line >= 0) & (line % CONV.stride == 0) & (column >= 0) & (column % CONV.stride == 0)
    line, column = line // CONV.stride, column // CONV.stride
    there = there & (line < CONV.out_height) & (column < CONV.out_width)
    image = pixel // (CONV.height * CONV.width)
    return (image * CONV.out_height + line) * CONV.out_width + column, there


@triton.jit
def _channels(tensor, pixel, there, CHANNELS: tl.constexpr):
    """[pixels, channels]: zero where there is no such pixel."""
    channel = tl.arange(0, CHANNELS)
    return tl.load(tensor + pixel[:, None] * CHANNELS + channel[None, :], mask=there[:, None], other=0.0)


@triton.jit
def _patches(images, pixel, there, CONV: tl.constexpr, WIDTH: tl.constexpr):
    """[pixels, taps x channels]: all that a pixel of the output sees, and zeros up to a power of two."""
    place = tl.arange(0, WIDTH)[None, :]
    source, inside = _source(pixel[:, None], place // CONV.inputs, CONV)
    seen = there[:, None] & inside & (place < 9 * CONV.inputs)
    return tl.load(images + source * CONV.inputs + place % CONV.inputs, mask=seen, other=0.0)


@triton.jit
def _first_forward(images, weight, out, pixels, CONV: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place, leaving = tl.arange(0, WIDTH)[:, None], tl.arange(0, CONV.outputs)[None, :]
    there = pixel < pixels
    factors = tl.load(weight + leaving * (9 * CONV.inputs) + place, mask=place < 9 * CONV.inputs, other=0.0)
    total = tl.dot(_patches(images, pixel, there, CONV, WIDTH), factors)
    tl.store(out + pixel[:, None] * CONV.outputs + leaving, total.to(out.dtype.element_ty), mask=there[:, None])


@triton.jit
def _first_weight_gradient(
    images, gradient, parts, pixels, EACH: tl.constexpr, CONV: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    OUTPUTS: tl.constexpr = CONV.outputs
    part = tl.program_id(0)
    total = tl.zeros([OUTPUTS, WIDTH], tl.float32)
    for step in range(0, EACH, BLOCK):
        pixel = part * EACH + step + tl.arange(0, BLOCK)
        change = tl.trans(_channels(gradient, pixel, pixel < pixels, OUTPUTS))
        total = tl.dot(change, _patches(images, pixel, pixel < pixels, CONV, WIDTH), total)
    place, leaving = tl.arange(0, WIDTH)[None, :], tl.arange(0, OUTPUTS)[:, None]
    target = parts + (part * OUTPUTS + leaving) * (9 * CONV.inputs) + place
    tl.store(target, total, mask=place < 9 * CONV.inputs)


@triton.jit
def _forward(images, weight, out, pixels, CONV: tl.constexpr, BLOCK: tl.constexpr):
    INPUTS: tl.constexpr = CONV.inputs
    OUTPUTS: tl.constexpr = CONV.outputs
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    entering, leaving = tl.arange(0, INPUTS), tl.arange(0, OUTPUTS)
    total = tl.zeros([BLOCK, OUTPUTS], tl.float32)
    for tap in tl.static_range(9):
        source, inside = _source(pixel, tap, CONV)
        seen = _channels(images, source, inside & (pixel < pixels), INPUTS)
        factors = tl.load(weight + (leaving[None, :] * 9 + tap) * INPUTS + entering[:, None])
        total = tl.dot(seen, factors, total)
    place = pixel[:, None] * OUTPUTS + leaving[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=(pixel < pixels)[:, None])


@triton.jit
def _input_gradient(gradient, weight, out, pixels, CONV: tl.constexpr, BLOCK: tl.constexpr):
    INPUTS: tl.constexpr = CONV.inputs
    OUTPUTS: tl.constexpr = CONV.outputs
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    entering, leaving = tl.arange(0, INPUTS), tl.arange(0, OUTPUTS)
    total = tl.zeros([BLOCK, INPUTS], tl.float32)
    for tap in tl.static_range(9):
        target, there = _target(pixel, tap, CONV)
        change = _channels(gradient, target, there & (pixel < pixels), OUTPUTS)
        factors = tl.load(weight + (leaving[:, None] * 9 + tap) * INPUTS + entering[None, :])
        total = tl.dot(change, factors, total)
    place = pixel[:, None] * INPUTS + entering[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=(pixel < pixels)[:, None])


@triton.jit
def _weight_gradient(images, gradient, parts, pixels, EACH: tl.constexpr, CONV: tl.constexpr, BLOCK: tl.constexpr):
    """One part of the sum over all pixels, for the three taps of one line of the kernel."""
    INPUTS: tl.constexpr = CONV.inputs
    OUTPUTS: tl.constexpr = CONV.outputs
    part, line = tl.program_id(0), tl.program_id(1)
    left = tl.zeros([OUTPUTS, INPUTS], tl.float32)
    middle = tl.zeros([OUTPUTS, INPUTS], tl.float32)
    right = tl.zeros([OUTPUTS, INPUTS], tl.float32)
    for step in range(0, EACH, BLOCK):
        pixel = part * EACH + step + tl.arange(0, BLOCK)
        change = tl.trans(_channels(gradient, pixel, pixel < pixels, OUTPUTS))
        source, inside = _source(pixel, 3 * line, CONV)
        left = tl.dot(change, _channels(images, source, inside & (pixel < pixels), INPUTS), left)
        source, inside = _source(pixel, 3 * line + 1, CONV)
        middle = tl.dot(change, _channels(images, source, inside & (pixel < pixels), INPUTS), middle)
        source, inside = _source(pixel, 3 * line + 2, CONV)
        right = tl.dot(change, _channels(images, source, inside & (pixel < pixels), INPUTS), right)
    entering, leaving = tl.arange(0, INPUTS), tl.arange(0, OUTPUTS)
    place = parts + ((part * OUTPUTS + leaving[:, None]) * 9 + 3 * line) * INPUTS + entering[None, :]
    tl.store(place, left)
    tl.store(place + INPUTS, middle)
    tl.store(place + 2 * INPUTS, right)


def forward(images: Tensor, weight: Tensor, out: Tensor, conv: Conv) -> None:
    """All channels last, in one type."""
    pixels = out.numel() // conv.outputs
    block = _block(pixels)
    grid = (triton.cdiv(pixels, block),)
    with torch.cuda.device_of(out):
        if conv.inputs < SMALLEST:
            _first_forward[grid](images, weight, out, pixels, conv, _width(conv), block)
        else:
            _forward[grid](images, weight, out, pixels, conv, block)


def input_gradient(gradient: Tensor, weight: Tensor, out: Tensor, conv: Conv) -> None:
    pixels = out.numel() // conv.inputs
    block = _block(pixels)
    with torch.cuda.device_of(out):
        _input_gradient[(triton.cdiv(pixels, block),)](gradient, weight, out, pixels, conv, block)


def parts_of(pixels: int) -> int:
    """Into how many parts the sum over the pixels is divided."""
    return max(1, min(PROGRAMS // 2, pixels // (4 * BLOCKS[0])))


def weight_gradient(images: Tensor, gradient: Tensor, parts: Tensor, conv: Conv) -> None:
    """``parts`` [parts, outputs, 9, inputs], in float32, add up to it."""
    pixels = gradient.numel() // conv.outputs
    each = triton.cdiv(pixels, len(parts) * BLOCKS[0]) * BLOCKS[0]
    with torch.cuda.device_of(parts):
        if conv.inputs < SMALLEST:
            _first_weight_gradient[(len(parts),)](images, gradient, parts, pixels, each, conv, _width(conv), BLOCKS[0])
        else:
            _weight_gradient[(len(parts), 3)](images, gradient, parts, pixels, each, conv, BLOCKS[0])


def _block(pixels: int) -> int:
    small, large = BLOCKS
    return large if pixels >= PROGRAMS * large else small


def _width(conv: Conv) -> int:
    return int(triton.next_power_of_2(9 * conv.inputs))

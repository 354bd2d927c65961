"""Random crop, horizontal flip and normalisation of whole tensors of images, on whatever device they are.

A small image set lives on the training device as bytes. The trainer draws the moves of an epoch at once, and applies
them to many images at a time; there is no loop over images, no worker process and no copy from the host.

>>> images = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
>>> moves = draw_moves(len(images), pad=4, generator=torch.Generator().manual_seed(0))
>>> moved = apply_moves(images, moves, pad=4, mode="reflect")
>>> scale, shift = affine((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
>>> normalise(moved, scale, shift, dtype=torch.bfloat16).shape
torch.Size([8, 3, 32, 32])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

PadMode = Literal["reflect", "zero"]


@dataclass(frozen=True, eq=False)
class Moves:
    """For each image: where its window lies in the padded image, and whether it is mirrored afterwards."""

    top: Tensor  # int64, 0 .. 2 * pad; pad is "not moved"
    left: Tensor
    mirrored: Tensor  # bool

    def __getitem__(self, part: slice | Tensor) -> Moves:
        return Moves(self.top[part], self.left[part], self.mirrored[part])

    def to(self, device: torch.device) -> Moves:
        """The same moves on another device."""
        return Moves(self.top.to(device), self.left.to(device), self.mirrored.to(device))


def draw_moves(count: int, *, pad: int, flip: float = 0.5, generator: torch.Generator) -> Moves:
    """Independent moves for `count` images: offsets uniform in 0 .. 2 pad, mirrored with probability `flip`.

    They are drawn on the generator's device. Draw with a CPU generator to get the same moves for every device.
    """
    top, left = torch.randint(2 * pad + 1, (2, count), generator=generator, device=generator.device)
    mirrored = torch.rand(count, generator=generator, device=generator.device) < flip
    return Moves(top, left, mirrored)


def apply_moves(images: Tensor, moves: Moves, *, pad: int, mode: PadMode) -> Tensor:
    """Pad NCHW `images` by `pad` on each side, cut a window of the old size out of each, mirror where asked.

    The padded images are never built: every output pixel is gathered from the place the padding would have copied it
    from. `reflect` mirrors about the border pixel (which is not repeated), so `pad` is below the image's side; `zero`
    pads with byte 0, before normalisation.
    """
    count, channels, height, width = images.shape
    rows = torch.arange(height, device=images.device) + (moves.top[:, None] - pad)
    columns = torch.arange(width, device=images.device).expand(count, width)
    columns = torch.where(moves.mirrored[:, None], width - 1 - columns, columns) + (moves.left[:, None] - pad)
    source = _source(rows, height, mode)[:, :, None] * width + _source(columns, width, mode)[:, None, :]
    index = source.view(count, 1, height * width).expand(count, channels, height * width)
    moved = images.reshape(count, channels, height * width).gather(2, index).view(images.shape)
    if mode == "zero":
        inside = _inside(rows, height)[:, None, :, None] & _inside(columns, width)[:, None, None, :]
        moved = moved * inside
    return moved


def affine(
    mean: Sequence[float], std: Sequence[float], device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """`scale` and `shift` such that byte * scale + shift = (byte / 255 - mean) / std, per channel.

    Computed once and kept on the device, so that normalising makes no host copy.
    """
    if len(mean) != len(std) or not all(deviation > 0 for deviation in std):
        raise ValueError(f"std={tuple(std)}: must be positive and as many as mean has, {len(mean)}")
    scale = torch.tensor([1 / (255 * deviation) for deviation in std], dtype=torch.float32, device=device)
    shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], dtype=torch.float32, device=device)
    return scale.view(1, -1, 1, 1), shift.view(1, -1, 1, 1)


def normalise(
    images: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Bytes to numbers around zero: images * scale + shift in float32, then rounded to `dtype`.

    `memory_format=torch.channels_last` gives the layout that convolutions on tensor cores want.
    """
    return torch.addcmul(shift, images.float(), scale).to(dtype=dtype, memory_format=memory_format)


def _source(position: Tensor, size: int, mode: PadMode) -> Tensor:
    """The pixel that padding puts at `position`, which may lie outside 0 .. size - 1."""
    if mode == "zero":
        return position.clamp(0, size - 1)
    position = position.abs()
    return torch.minimum(position, 2 * (size - 1) - position)


def _inside(position: Tensor, size: int) -> Tensor:
    return (position >= 0) & (position < size)

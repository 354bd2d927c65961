"""Augmentation on whole tensors equals the obvious loop over padded images, and is what it claims statistically."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from devices import DEVICES
from examples import examples
from granet.data.augment import Moves, PadMode, affine, apply_moves, draw_moves, normalise
from refusals import refused


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_crop_flip(
    images: Tensor, *, pad: int, mode: PadMode, flip: float = 0.5, generator: torch.Generator
) -> Tensor:
    moves = draw_moves(len(images), pad=pad, flip=flip, generator=generator)
    return apply_moves(images, moves, pad=pad, mode=mode)


def slow(images: Tensor, moves: Moves, pad: int, mode: PadMode) -> Tensor:
    """One image at a time, with torch's own padding."""
    kind = "reflect" if mode == "reflect" else "constant"
    height, width = images.shape[2:]
    padded = F.pad(images.float(), (pad, pad, pad, pad), mode=kind).to(images.dtype)
    out = []
    for image, top, left, mirrored in zip(padded, moves.top, moves.left, moves.mirrored, strict=True):
        window = image[:, top : top + height, left : left + width]
        out.append(window.flip(-1) if mirrored else window)
    return torch.stack(out)


@settings(max_examples=examples(60))
@given(
    count=st.integers(1, 6),
    channels=st.integers(1, 4),
    height=st.integers(4, 9),
    width=st.integers(4, 9),
    pad=st.integers(0, 3),
    mode=st.sampled_from(["reflect", "zero"]),
    seed=st.integers(0, 2**31),
)
def test_equals_a_loop_over_padded_images(
    count: int, channels: int, height: int, width: int, pad: int, mode: PadMode, seed: int
) -> None:
    images = torch.randint(256, (count, channels, height, width), dtype=torch.uint8, generator=seeded(seed))
    moves = draw_moves(count, pad=pad, generator=seeded(seed))
    assert torch.equal(apply_moves(images, moves, pad=pad, mode=mode), slow(images, moves, pad, mode))


def test_zeros_may_be_wider_than_the_image() -> None:
    images = torch.randint(1, 256, (200, 2, 3, 4), dtype=torch.uint8, generator=seeded(1))
    moves = draw_moves(200, pad=9, generator=seeded(1))
    assert torch.equal(apply_moves(images, moves, pad=9, mode="zero"), slow(images, moves, 9, "zero"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["reflect", "zero"])
def test_same_on_every_device_and_for_every_chunk(device: str, mode: PadMode) -> None:
    images = torch.randint(256, (50, 3, 16, 16), dtype=torch.uint8, generator=seeded(1))
    moves = draw_moves(len(images), pad=2, generator=seeded(2))
    whole = apply_moves(images, moves, pad=2, mode=mode)
    there, moves = images.to(device), moves.to(torch.device(device))
    for chunk in (1, 7, 50, 1000):
        parts = [slice(start, start + chunk) for start in range(0, len(images), chunk)]
        moved = torch.cat([apply_moves(there[part], moves[part], pad=2, mode=mode) for part in parts])
        assert moved.device.type == device
        assert torch.equal(moved.cpu(), whole)


def test_seed_decides_and_generator_advances() -> None:
    images = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8, generator=seeded())
    generator = seeded(5)
    first, second = (random_crop_flip(images, pad=2, mode="reflect", generator=generator) for _ in range(2))
    assert torch.equal(first, random_crop_flip(images, pad=2, mode="reflect", generator=seeded(5)))
    assert not torch.equal(first, second)


def test_the_order_of_draws_stays_as_it_is() -> None:
    """First the rows of all images, then the columns, then what is mirrored: a change would alter every run."""
    moves, generator = draw_moves(6, pad=4, generator=seeded()), seeded()
    top, left = torch.randint(9, (2, 6), generator=generator)
    assert torch.equal(moves.top, top)
    assert torch.equal(moves.left, left)
    assert torch.equal(moves.mirrored, torch.rand(6, generator=generator) < 0.5)


def test_moves_are_uniform_and_independent() -> None:
    moves = draw_moves(90_000, pad=4, generator=seeded(3))
    cells = torch.bincount(moves.top * 9 + moves.left, minlength=81).double() / 90_000
    assert cells.sub(1 / 81).abs().max() < 6 * (1 / 81 / 90_000) ** 0.5
    assert abs(moves.mirrored.double().mean().item() - 0.5) < 0.01
    assert abs(moves.top[moves.mirrored].double().mean().item() - 4) < 0.06


def test_no_pad_and_no_flip_is_the_identity() -> None:
    images = torch.randint(256, (10, 3, 8, 8), dtype=torch.uint8, generator=seeded())
    assert torch.equal(random_crop_flip(images, pad=0, mode="zero", flip=0.0, generator=seeded()), images)
    mirrored = random_crop_flip(images, pad=0, mode="reflect", flip=1.0, generator=seeded())
    assert torch.equal(mirrored, images.flip(-1))


def test_channels_last_input_is_read_right() -> None:
    images = torch.randint(256, (10, 3, 8, 8), dtype=torch.uint8, generator=seeded())
    other = images.contiguous(memory_format=torch.channels_last)
    first, second = (random_crop_flip(x, pad=2, mode="zero", generator=seeded()) for x in (images, other))
    assert torch.equal(first, second)


@pytest.mark.parametrize("device", DEVICES)
def test_normalise_is_the_textbook_formula(device: str) -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(2, 3, 1, 1)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    got = normalise(images.to(device), *affine(mean, std, device)).cpu()
    m, s = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in (mean, std))
    torch.testing.assert_close(got.double(), (images.double() / 255 - m) / s, rtol=1e-5, atol=1e-6)
    half = normalise(images.to(device), *affine(mean, std, device), dtype=torch.bfloat16).cpu()
    assert torch.equal(half, got.bfloat16())


def test_memory_format() -> None:
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    out = normalise(images, *affine((0.5,) * 3, (0.5,) * 3), memory_format=torch.channels_last)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert not out.is_contiguous()


def test_deviations_are_positive() -> None:
    with refused("std", (0.0,)):
        affine((0.5,), (0.0,))

"""Batches on the device: every image once per epoch, shifted and mirrored as told, the same for the same seed."""

import pytest
import torch
from torch import Tensor

from granet.training import batches as module
from granet.training.batches import Batches, normaliser
from refusals import refused

PLAIN = normaliser((0.0,), (1 / 255,), torch.device("cpu"))  # leaves the byte values as they are


def numbered(count: int, size: int = 4) -> tuple[Tensor, Tensor]:
    """Images that tell their own pixels apart, labelled with their number."""
    pixels = torch.arange(size * size).view(1, 1, size, size) + torch.arange(count).view(-1, 1, 1, 1)
    return pixels.to(torch.uint8), torch.arange(count)


def test_an_epoch_is_a_permutation_in_full_batches() -> None:
    images, labels = numbered(23)
    batches = Batches(images, labels, batch_size=5, normalise=PLAIN)
    epochs = [list(batches.epoch()) for _ in range(2)]
    for epoch in epochs:
        assert len(epoch) == len(batches) == 4
        seen = torch.cat([answers for _, answers in epoch])
        assert len(set(seen.tolist())) == 20
        for pictures, answers in epoch:
            assert torch.equal(pictures, images[answers].float())
    assert not torch.equal(epochs[0][0][1], epochs[1][0][1])


def test_seed_decides_everything() -> None:
    def draw(seed: int) -> Tensor:
        batches = Batches(*numbered(20), batch_size=20, normalise=PLAIN, crop=1, flip=True, seed=seed)
        return torch.stack([next(batches.epoch())[0] for _ in range(2)])

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_crops_are_windows_of_the_reflected_image() -> None:
    images, labels = numbered(500)
    padded = torch.nn.functional.pad(images.float(), [1] * 4, mode="reflect")
    batches = Batches(images, labels, batch_size=500, normalise=PLAIN, crop=1)
    pictures, answers = next(batches.epoch())
    found = torch.zeros(3, 3)
    for down in range(3):
        for right in range(3):
            window = padded[answers, :, down : down + 4, right : right + 4]
            found[down, right] = (pictures == window).flatten(1).all(1).sum()
    assert found.sum() == 500  # each picture is one of the nine windows
    assert found.min() > 20  # about 56 each


def test_flip_mirrors_about_half() -> None:
    images, labels = numbered(400)
    pictures, answers = next(Batches(images, labels, batch_size=400, normalise=PLAIN, flip=True).epoch())
    straight = (pictures == images[answers]).flatten(1).all(1)
    mirrored = (pictures == images[answers].flip(3)).flatten(1).all(1)
    assert (straight ^ mirrored).all()
    assert 150 < mirrored.sum() < 250


def test_normalise_per_channel() -> None:
    images = torch.randint(0, 256, (64, 2, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    scaled = images.float() / 255
    mean, std = scaled.mean((0, 2, 3)), scaled.std((0, 2, 3))
    normalise = normaliser(tuple(mean.tolist()), tuple(std.tolist()), torch.device("cpu"))
    expected = (scaled - mean.view(1, 2, 1, 1)) / std.view(1, 2, 1, 1)
    torch.testing.assert_close(normalise(images), expected, atol=1e-5, rtol=1e-5)
    assert normalise(images).is_contiguous()  # on a GPU they come out channels-last


def test_crop_must_fit() -> None:
    with refused("crop", 4):
        Batches(*numbered(8), batch_size=4, normalise=PLAIN, crop=4)
    oblong = torch.zeros(8, 1, 4, 6, dtype=torch.uint8)
    with refused("crop", 4, "4"):
        Batches(oblong, torch.zeros(8, dtype=torch.int64), batch_size=4, normalise=PLAIN, crop=4)


def test_a_pass_is_the_same_however_many_batches_are_prepared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that is taken up again goes on with the batches that it has left."""

    def draw(skip: int = 0) -> list[tuple[Tensor, Tensor]]:
        batches = Batches(*numbered(23), batch_size=3, normalise=PLAIN, crop=1, padding="zero", flip=True, seed=5)
        return list(batches.epoch(skip))

    whole = draw()
    monkeypatch.setattr(module, "BATCHES_AT_ONCE", 2)
    for skip in (0, 1, 4, 7):
        drawn = draw(skip)
        assert len(drawn) == 7 - skip
        for (pictures, answers), (other, same) in zip(drawn, whole[skip:], strict=True):
            assert torch.equal(pictures, other) and torch.equal(answers, same)


def test_crops_of_an_image_padded_with_zeros() -> None:
    images, labels = numbered(200)
    images += 1  # so that only the padding is zero
    padded = torch.nn.functional.pad(images.float(), [1] * 4)
    pictures, answers = next(Batches(images, labels, batch_size=200, normalise=PLAIN, crop=1, padding="zero").epoch())
    windows = torch.stack([padded[answers, :, i : i + 4, j : j + 4] for i in range(3) for j in range(3)])
    assert (windows == pictures).flatten(2).all(2).any(0).all()

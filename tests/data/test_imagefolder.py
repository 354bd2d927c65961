"""Folders of image files: the same pixels for every number of workers, sound crops, and clear words on bad files."""

from __future__ import annotations

import builtins
import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from examples import examples
from granet.data import MissingDataError
from granet.data.imagefolder import ImageFolder, _read, _rgb, epoch_permutation, image_folders
from granet.data.transforms import RandomResizedCrop, ResizeCentreCrop
from refusals import refused

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes, twelve training images of odd sizes and modes, three validation images."""
    root: Path = tmp_path_factory.mktemp("images") / "imagenet"
    noise = np.random.default_rng(0)
    for part, per_class in (("train", 4), ("val", 1)):
        for label, name in enumerate(("ant", "bee", "cat")):
            place = root / part / name
            place.mkdir(parents=True)
            for number in range(per_class):
                pixels = noise.integers(0, 256, (40 + 7 * number, 50 - 5 * label, 3), dtype=np.uint8)
                mode, extension = (("RGB", "png"), ("L", "jpg"), ("RGBA", "png"), ("P", "png"))[number % 4]
                Image.fromarray(pixels).convert(mode).save(place / f"{number}.{extension}")
    return root


def batches(folder: Path, *, workers: int, epoch: int, seed: int = 0) -> list[torch.Tensor]:
    data = ImageFolder(folder / "train", RandomResizedCrop(16), seed=seed)
    loader = DataLoader(data, batch_size=5, sampler=data.keys(epoch), num_workers=workers)
    return [part for images, labels in loader for part in (images, labels)]


def test_items(folder: Path) -> None:
    data = image_folders(data_dir=folder.parent, size=16, resize=20)
    assert (len(data.train), len(data.val), data.classes) == (12, 3, 3)
    assert data.train.classes == ("ant", "bee", "cat")
    assert [int(label) for label in data.train.labels] == [0] * 4 + [1] * 4 + [2] * 4
    for part in (data.train, data.val):
        for image, label in (part[index] for index in range(len(part))):
            assert (image.shape, image.dtype) == ((3, 16, 16), torch.uint8)
            assert 0 <= label < 3
    assert len(image_folders(data_dir=folder, size=16, resize=20).train) == 12  # the folder itself works too


def test_images_are_in_the_order_of_their_names_not_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    for name in "hcagdbfe":
        (tmp_path / "one" / f"{name}.png").touch()
    assert b"".join(bytes(file)[4:5] for file in ImageFolder(tmp_path, RandomResizedCrop()).files) == b"abcdefgh"


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # said on one processor
def test_workers_do_not_change_the_pixels(folder: Path) -> None:
    alone, shared = batches(folder, workers=0, epoch=3), batches(folder, workers=2, epoch=3)
    assert len(alone) == len(shared) == 6
    assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))


def test_epoch_and_seed_change_the_pixels(folder: Path) -> None:
    data = ImageFolder(folder / "train", RandomResizedCrop(16), seed=0)
    other = ImageFolder(folder / "train", RandomResizedCrop(16), seed=1)
    assert torch.equal(data[0, 5][0], data[0, 5][0])
    assert torch.equal(data[5][0], data[0, 5][0])
    assert torch.equal(data[-1][0], data[11][0])
    assert not torch.equal(data[0, 5][0], data[1, 5][0])
    assert not torch.equal(data[0, 5][0], other[0, 5][0])


def test_epoch_reaches_persistent_workers(folder: Path) -> None:
    """Workers that outlive an epoch hold an old copy of the data set; the epoch reaches them with the request."""
    data = ImageFolder(folder / "train", RandomResizedCrop(16))
    keys: list[tuple[int, int]] = []
    loader = DataLoader(data, batch_size=12, sampler=keys, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        keys[:] = data.keys(epoch)
        ((images, _),) = loader
        expected = torch.stack([data[key][0] for key in keys])
        assert torch.equal(images, expected)


@settings(max_examples=examples(200))
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 10**9))
def test_random_part_lies_inside_the_image(width: int, height: int, seed: int) -> None:
    left, top, w, h = RandomResizedCrop().box(width, height, random.Random(seed))
    assert left >= 0
    assert top >= 0
    assert 1 <= w <= width - left
    assert 1 <= h <= height - top


def test_random_parts_have_the_stated_area_and_aspect() -> None:
    crop, choices = RandomResizedCrop(), random.Random(0)
    boxes = [crop.box(500, 500, choices) for _ in range(4000)]
    areas = np.array([w * h / 250_000 for _, _, w, h in boxes])
    aspects = np.array([w / h for _, _, w, h in boxes])
    assert areas.min() > 0.078
    assert areas.max() <= 1.0
    # a drawn area a > 3/4 fits with probability log(1/a) / log(4/3); what fits has mean 0.478
    assert areas.mean() == pytest.approx(0.478, abs=0.012)
    assert aspects.min() > 0.74
    assert aspects.max() < 1.35
    assert abs(np.log(aspects).mean()) < 0.02


def test_random_parts_lie_anywhere_up_to_every_edge() -> None:
    crop, choices = RandomResizedCrop(), random.Random(0)
    boxes = [crop.box(4, 4, choices) for _ in range(400)]
    corners = {(left, top) for left, top, width, height in boxes if width == height == 2}
    assert corners == set(itertools.product(range(3), repeat=2))


@pytest.mark.parametrize(("size", "box"), [((1000, 10), (493, 0, 13, 10)), ((10, 1000), (0, 493, 10, 13))])
def test_of_an_image_too_long_for_any_draw_the_largest_allowed_part_of_the_centre_is_taken(
    size: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    """Its aspect ratio is 4:3 or 3:4, in whole pixels."""
    assert {RandomResizedCrop().box(*size, random.Random(seed)) for seed in range(20)} == {box}


def test_half_of_the_random_parts_are_mirrored() -> None:
    rising = Image.fromarray(np.tile(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], (64, 1, 3)))
    choices = random.Random(0)
    parts = [np.asarray(RandomResizedCrop(8)(rising, choices))[0, :, 0].astype(int) for _ in range(400)]
    mirrored = sum(part[0] > part[-1] for part in parts)
    assert abs(mirrored - 200) < 50  # five deviations
    assert all(abs(np.diff(part)).sum() == abs(part[-1] - part[0]) for part in parts)  # nothing else is turned


@pytest.mark.parametrize("size", [(300, 100), (100, 300)])
def test_the_shorter_side_is_resized_and_the_longer_one_keeps_its_proportion(size: tuple[int, int]) -> None:
    """Of three thirds, red, green and blue, the middle one is what is left."""
    thirds = np.repeat(np.eye(3, dtype=np.uint8) * 255, 100, axis=0)[None].repeat(100, axis=0)
    image = Image.fromarray(thirds if size[0] > size[1] else thirds.swapaxes(0, 1))
    assert image.size == size
    out = np.asarray(ResizeCentreCrop(64, 48)(image, random.Random(0)))
    assert out.shape == (48, 48, 3) and (out == [0, 255, 0]).all()


def test_centre_crop_takes_the_centre() -> None:
    """A gradient image shows where the window came from; the result has no randomness."""
    gradient = np.tile(np.arange(200, dtype=np.uint8)[None, :, None], (100, 1, 3))
    out = np.asarray(ResizeCentreCrop(100, 50)(Image.fromarray(gradient), random.Random(0)))
    assert out.shape == (50, 50, 3)
    assert list(out[0, [0, -1], 0]) == [75, 124]


def test_an_image_of_one_long_row_is_cut_before_it_is_resized() -> None:
    """Whole it would have 256 times 15 million pixels."""
    row = np.zeros((1, 60_000, 3), np.uint8)
    row[:, 29_950:30_050] = 200
    for image in (Image.fromarray(row), Image.fromarray(row).transpose(Image.Transpose.ROTATE_90)):
        out = np.asarray(ResizeCentreCrop(256, 224)(image, random.Random(0)))
        assert out.shape == (224, 224, 3) and (out == 200).all()


def test_permutations() -> None:
    orders = [epoch_permutation(101, seed=3, epoch=epoch).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(101)) for order in orders)
    assert orders[0] != orders[1] != orders[2]


def test_known_permutation_stays_the_same() -> None:
    """Runs resumed on another machine or Python must see the same order."""
    assert epoch_permutation(8, seed=1, epoch=2).tolist() == [5, 7, 1, 0, 6, 4, 3, 2]


def test_missing_folder_says_where_to_get_the_images(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"imagenet: no folder .*image-net\.org.*--data-dir.*GRANET_DATA"):
        image_folders(data_dir=tmp_path)
    with pytest.raises(MissingDataError, match="no such folder"):
        ImageFolder(tmp_path / "absent", RandomResizedCrop())
    with pytest.raises(ValueError, match="holds no class folders"):
        ImageFolder(tmp_path, RandomResizedCrop())
    (tmp_path / "ant").mkdir()
    (tmp_path / "ant" / "notes.txt").write_text("no image")
    with refused(Path("ant")):
        ImageFolder(tmp_path, RandomResizedCrop())


def test_different_classes_in_train_and_val(folder: Path, tmp_path: Path) -> None:
    for part, names in (("train", ("ant", "bee")), ("val", ("ant",))):
        for name in names:
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / part / name / "0.png")
    with pytest.raises(ValueError, match="class 'bee' is in train only"):
        image_folders(data_dir=tmp_path)


def test_damaged_images_are_named(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "train" / "ant" / "1.jpg").read_bytes()
    (tmp_path / "ant").mkdir()
    (tmp_path / "ant" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "ant" / "1.jpg").write_bytes(b"no image at all")
    data = ImageFolder(tmp_path, RandomResizedCrop(8))
    for index in range(2):
        with pytest.raises(ValueError, match=rf"ant/{index}\.jpg: not a readable image"):
            data[index]
    with pytest.raises(IndexError):
        data[2]


def test_whatever_a_decoder_raises_names_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow goes by the contents, and its decoders of some formats (AVIF, DDS) raise errors of their own."""

    def fail(*_: object) -> None:
        raise RuntimeError("Failed to decode image")

    Image.new("RGB", (4, 4)).save(tmp_path / "0.png")
    monkeypatch.setattr("granet.data.imagefolder._rgb", fail)
    with pytest.raises(ValueError, match=r"0\.png: not a readable image \(Failed to decode image\)$"):
        _read(tmp_path / "0.png")


GRAY = np.linspace(0, 65535, 400).astype(np.uint16).reshape(20, 20)


@pytest.mark.parametrize("name", ["gray.png", "gray.ppm"])  # Pillow opens them as I;16 and as I
def test_sixteen_bit_gray_keeps_its_shades(name: str, tmp_path: Path) -> None:
    Image.fromarray(GRAY).save(tmp_path / name)
    pixels = np.asarray(_read(tmp_path / name))
    assert pixels.shape == (20, 20, 3)
    assert np.array_equal(pixels, np.repeat(GRAY[:, :, None] >> 8, 3, axis=2))


def test_sixteen_bit_gray_in_every_mode_of_every_pillow() -> None:
    """Older versions open such a PNG as I, and big-endian files may come as I;16B."""
    older = Image.fromarray(GRAY.astype(np.int32))
    older.format = "PNG"
    swapped = Image.frombytes("I;16B", (20, 20), GRAY.astype(">u2").tobytes())
    for image in (older, swapped):
        assert np.array_equal(np.asarray(_rgb(image))[:, :, 0], GRAY >> 8)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_of_unknown_range_are_refused(mode: str, tmp_path: Path) -> None:
    """A TIFF file by another name: Pillow goes by the contents."""
    Image.new(mode, (4, 4), 300).save(tmp_path / "wide.png", format="TIFF")
    with pytest.raises(ValueError, match=rf"wide\.png: not a readable image \(its mode is {mode}, [^\n]*\)$"):
        _read(tmp_path / "wide.png")


def test_without_pillow_a_plain_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_pillow(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", no_pillow)
    with pytest.raises(ValueError, match=r"needs Pillow \(pip install pillow, or granet"):
        ImageFolder(folder / "train", RandomResizedCrop())

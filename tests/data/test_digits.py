"""The embedded images: all there, split once and for all, nothing shared between the parts."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from granet.data.dataset import ImageSet, channel_statistics
from granet.data.digits import digits
from refusals import refused

PARTS = ("train", "val", "test")


@pytest.fixture(scope="module")
def data() -> ImageSet:
    return digits()


def test_all_1797_images_in_a_small_file(data: ImageSet) -> None:
    assert [len(getattr(data, f"{part}_labels")) for part in PARTS] == [1264, 178, 355]
    assert data.shape == (1, 8, 8) and data.classes == 10
    folder = files("granet.data")
    assert len(folder.joinpath("digits.npz").read_bytes()) <= 57 * 1024
    notice = folder.joinpath("NOTICE").read_text()
    assert all(words in notice for words in ("Alpaydin", "Kaynak", "CC BY 4.0", "10.24432/C50P49"))


def test_split_is_stratified_and_fixed(data: ImageSet) -> None:
    """Each class gives two of ten images to testing and one of ten to validation, to within one image."""
    totals = torch.tensor([178, 182, 177, 183, 181, 182, 181, 179, 174, 180])  # known counts of the UCI file
    counts = {part: torch.bincount(getattr(data, f"{part}_labels"), minlength=10) for part in PARTS}
    assert torch.equal(sum(counts.values()), totals)
    assert ((counts["test"] - totals / 5).abs() < 1).all()
    assert ((counts["val"] - totals / 10).abs() < 1).all()
    # The first image of the file is a 0 and is for training; its first row, from the UCI file, is 0 0 5 13 9 1 0 0.
    assert data.train_labels[0] == 0
    assert data.train_images[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert torch.equal(digits().test_images, data.test_images)


def test_parts_share_no_image(data: ImageSet) -> None:
    train, val, test = (
        {bytes(image.flatten().tolist()) for image in getattr(data, f"{part}_images")} for part in PARTS
    )
    assert len(train | val | test) == 1797
    assert not (train & val or train & test or val & test)


def test_pixels_and_statistics(data: ImageSet) -> None:
    assert data.train_images.min() == 0 and data.train_images.max() == 255
    scaled = data.train_images.double() / 255
    assert data.mean == pytest.approx([scaled.mean().item()])
    assert data.std == pytest.approx([scaled.std(correction=0).item()])


def test_channel_statistics_are_per_channel() -> None:
    images = torch.randint(0, 256, (50, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = channel_statistics(images)
    scaled = images.double() / 255
    assert mean == pytest.approx(scaled.mean((0, 2, 3)).tolist())
    assert std == pytest.approx(scaled.std((0, 2, 3), correction=0).tolist())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train_images", torch.zeros(2, 1, 8, 8)),
        ("val_images", torch.zeros(2, 3, 8, 8, dtype=torch.uint8)),
        ("val_images", torch.zeros(2, 1, 8, 9, dtype=torch.uint8)),
        ("test_images", torch.zeros(2, 1, 9, 8, dtype=torch.uint8)),
        ("test_labels", torch.zeros(3, dtype=torch.int64)),
        ("train_labels", torch.zeros(2, dtype=torch.int32)),
        ("std", (1.0, 1.0)),
    ],
)
def test_image_set_refuses_what_a_loop_could_not_use(field: str, value: object) -> None:
    images, labels = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    good = {f"{part}_images": images for part in PARTS} | {f"{part}_labels": labels for part in PARTS}
    good |= {"name": "toy", "classes": 2, "mean": (0.5,), "std": (1.0,)}
    ImageSet(**good)
    with pytest.raises(ValueError, match=field):
        ImageSet(**good | {field: value})


def test_only_the_validation_part_may_be_empty(data: ImageSet) -> None:
    """Of no test images the accuracy would be 0 / 0, and a file that says so is no JSON."""
    assert len(replace(data, val_images=data.val_images[:0], val_labels=data.val_labels[:0]).val_labels) == 0
    with refused(Path("digits")):
        replace(data, test_images=data.test_images[:0], test_labels=data.test_labels[:0])

"""A set that stays in its files trains like one on the device: every image once an epoch, the same after a resume."""

import copy
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from granet.data.imagefolder import ImageFolders, image_folders
from granet.training import Recipe, Training
from granet.training.feeds import make_feed
from refusals import refused

Image = pytest.importorskip("PIL.Image", reason="streaming image files is not tested: no Pillow here")
RECIPE = Recipe(
    model="digits_net", data="imagenet", epochs=2, batch_size=4, method_fields={"sparsity": 0.5, "every": 2}
)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> ImageFolders:
    """Two classes of nine images, each of one shade, so that crops change nothing."""
    root = tmp_path_factory.mktemp("images")
    for part, count in (("train", 9), ("val", 3)):
        for label, name in enumerate(("dark", "light")):
            (root / part / name).mkdir(parents=True)
            for number in range(count):
                shade = 40 + 100 * label + 5 * number
                Image.new("RGB", (20, 24), (shade,) * 3).save(root / part / name / f"{number}.png")
    return image_folders(data_dir=root, size=8, resize=10)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_shows_each_image_at_most_once_and_the_next_another_order(folders: ImageFolders, workers: int) -> None:
    feed = make_feed(folders, RECIPE, CPU, workers)
    assert len(feed.train) == 4 and feed.val is None and feed.shape == (3, 8, 8)
    seen = []
    for _ in range(2):
        batches = list(feed.train.epoch())
        assert [len(labels) for _, labels in batches] == [4] * 4
        seen.append(torch.cat([images[:, 0, 0, 0] for images, _ in batches]))
        assert len(seen[-1].unique()) == 16
    assert not torch.equal(*seen)
    assert sum(len(labels) for _, labels in feed.test) == 6


def test_training_images_are_normalised_and_have_their_labels(folders: ImageFolders) -> None:
    feed = make_feed(folders, RECIPE, CPU, 0)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (folders.mean, folders.std))
    for images, labels in feed.train.epoch():
        shades = 255 * (images * std + mean)
        numbers = (shades - 40 - 100 * labels.view(-1, 1, 1, 1)) / 5
        torch.testing.assert_close(numbers, numbers[:, :1, :1, :1].round().clamp(0, 8).expand_as(numbers))


def test_skipped_batches_are_left_out_and_the_rest_is_the_same(folders: ImageFolders) -> None:
    feed, other = (make_feed(folders, RECIPE, CPU, 0) for _ in range(2))
    whole, rest = list(feed.train.epoch()), list(other.train.epoch(skip=3))
    assert len(rest) == 1 and torch.equal(whole[3][0], rest[0][0]) and torch.equal(whole[3][1], rest[0][1])


def test_runs_of_two_seeds_read_one_folder_in_two_orders(folders: ImageFolders) -> None:
    one, other = (make_feed(folders, replace(RECIPE, seed=seed), CPU, 0) for seed in (0, 1))
    (first, _), (second, _) = (next(iter(feed.train.epoch())) for feed in (one, other))
    assert not torch.equal(first, second)


def test_reading_draws_no_random_numbers(folders: ImageFolders) -> None:
    feed = make_feed(folders, RECIPE, CPU, 0)
    before = torch.get_rng_state()
    list(feed.train.epoch())
    list(feed.test)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("part", ["train", "val"])
def test_a_file_that_is_no_image_is_named_in_one_line(part: str, workers: int, tmp_path: Path) -> None:
    """Of whichever process: a worker's error arrives as a page of traceback."""
    for place in ("train", "val"):
        (tmp_path / place / "one").mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (12, 12)).save(tmp_path / place / "one" / f"{number}.png")
    (tmp_path / part / "one" / "2.png").write_bytes(b"no image: at all")
    feed = make_feed(image_folders(data_dir=tmp_path, size=8, resize=10), RECIPE, CPU, workers)
    with pytest.raises(ValueError) as caught:
        list(feed.train.epoch() if part == "train" else feed.test)
    words = str(caught.value)
    assert words.startswith(f"{tmp_path / part / 'one' / '2.png'}: not a readable image (") and "\n" not in words
    assert not multiprocessing.active_children()  # else the garbage collector would wait 5 s for it


@pytest.mark.parametrize(("field", "value"), [("crop", 4), ("flip", True)])
def test_augmentation_of_small_sets_is_refused(folders: ImageFolders, field: str, value: object) -> None:
    with refused(field, value, "imagenet"):
        make_feed(folders, replace(RECIPE, **{field: value}), CPU, 0)


@pytest.mark.parametrize(("asked", "given"), [(None, os.cpu_count()), (0, 0), (3, 3)])
def test_as_many_processes_read_as_asked_for_or_as_there_are_cores(
    folders: ImageFolders, asked: int | None, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("granet.training.feeds.DataLoader", loader := Mock(return_value=()))
    feed = make_feed(folders, RECIPE, CPU, asked)
    assert [*feed.train.epoch(), *feed.test] == []
    assert [call.kwargs["num_workers"] for call in loader.call_args_list] == [given, given]


def test_a_number_of_workers_is_not_negative(folders: ImageFolders) -> None:
    with refused("workers", -1):
        make_feed(folders, RECIPE, CPU, -1)


def test_it_trains_and_resumes(folders: ImageFolders) -> None:
    whole = Training(RECIPE, folders, workers=0)
    states = []
    list(whole.epochs(lambda: states.append(copy.deepcopy(whole.state()))))
    resumed = Training(RECIPE, folders, state=states[5], workers=0)
    assert resumed.step == 6 and len(resumed.records) == 1
    list(resumed.epochs())
    assert all(map(torch.equal, whole.model.parameters(), resumed.model.parameters()))
    assert whole.records[-1].val_accuracy is None and 0 <= whole.records[-1].test_accuracy <= 1
    assert [replace(r, seconds=0) for r in whole.records] == [replace(r, seconds=0) for r in resumed.records]
    assert whole.summary().sparsity == pytest.approx(0.5, abs=1e-4)

"""The published CIFAR files themselves, where the data folder (GRANET_DATA) has them."""

from __future__ import annotations

import pytest
import torch

from granet.data import MissingDataError, check, data_folder, load
from granet.data.cifar import CIFAR10, CIFAR100, CifarSet
from granet.data.dataset import ImageSet, channel_statistics


def real(name: str, val: int | None = None) -> ImageSet:
    try:
        return load(name, val=val)
    except MissingDataError as error:
        pytest.skip(f"set GRANET_DATA to a folder with the published files to run this: {error}")


def test_cifar10() -> None:
    data = real("cifar10")
    assert data.train_images.shape == (45_000, 3, 32, 32)
    assert data.val_images.shape == (5_000, 3, 32, 32)
    assert data.test_images.shape == (10_000, 3, 32, 32)
    assert torch.cat([data.train_labels, data.val_labels]).bincount().tolist() == [5_000] * 10
    assert data.test_labels.bincount().tolist() == [1_000] * 10
    assert data.train_labels[:6].tolist() == [6, 9, 9, 4, 1, 1]  # frog, truck, truck, deer, automobile, automobile
    mean, _ = channel_statistics(torch.cat([data.train_images, data.val_images]))
    assert mean == pytest.approx(data.mean, abs=2e-4)


def test_cifar100() -> None:
    data = real("cifar100")
    assert data.train_images.shape == (50_000, 3, 32, 32)
    assert data.val_images.shape == (0, 3, 32, 32)
    assert data.train_labels.bincount().tolist() == [500] * 100
    assert data.test_labels.bincount().tolist() == [100] * 100
    mean, std = channel_statistics(data.train_images)
    assert mean == pytest.approx(data.mean, abs=1e-4)
    assert std == pytest.approx(data.std, abs=1e-4)


@pytest.mark.parametrize("spec", [CIFAR10, CIFAR100], ids=lambda spec: spec.name)
def test_checksums(spec: CifarSet) -> None:
    place = spec.python.find(data_folder())
    if place is None:
        pytest.skip("set GRANET_DATA to a folder with the published files to run this")
    names = {*spec.python.files, spec.python.archive}
    results = [result for result in check(data_folder()) if result.path.name in names]
    assert results
    assert all(result.status == "ok" for result in results), results

"""The picture of a run."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from granet.training.plots import plot_run
from granet.training.records import EpochRecord


@pytest.mark.slow
@pytest.mark.parametrize("val_accuracy", [0.8, None])
def test_png_of_a_sensible_size(tmp_path: Path, val_accuracy: float | None) -> None:
    image = pytest.importorskip("matplotlib.image")
    one = EpochRecord(1, 19, 0.5, 0.1, 0.3, 0.9, val_accuracy, 0.91, 0.0, 0.0)
    path = tmp_path / "curves.png"
    plot_run([one, replace(one, epoch=2, sparsity=0.9, target_sparsity=0.9)], path, "a run")
    pixels = torch.from_numpy(image.imread(path))
    assert pixels.shape == (600, 840, 4)
    assert pixels[..., :3].flatten(0, 1).unique(dim=0).shape[0] > 10  # something is drawn
    assert [file.name for file in tmp_path.iterdir()] == ["curves.png"]

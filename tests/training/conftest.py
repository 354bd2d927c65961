"""Images that are learned within a second."""

import pytest
import torch

from granet.data.dataset import ImageSet


@pytest.fixture(scope="module")
def data() -> ImageSet:
    """Two easy classes: bright pixels in the upper or in the lower half."""
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 2, (count,), generator=generator)
        images = torch.randint(0, 120, (count, 1, 8, 8), generator=generator)
        images[labels == 0, :, :4] += 90
        images[labels == 1, :, 4:] += 90
        return images.to(torch.uint8), labels

    (train, train_labels), (val, val_labels), (test, test_labels) = part(200), part(40), part(100)
    return ImageSet("toy", train, train_labels, val, val_labels, test, test_labels, 2, (0.4,), (0.2,))

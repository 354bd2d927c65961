"""The two transforms of the ImageNet recipe, on Pillow images, with their random choices handed in."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

BILINEAR = 2  # PIL.Image.Resampling.BILINEAR, Pillow being optional; it averages when it shrinks

AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
LONGEST = 100
"""How many times as long as wide an image may be before its ends go first: resized whole, a file of few bytes with one
row of pixels would fill the memory."""


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part of the image, resized to a square, mirrored half the time (Szegedy et al., 2015).

    Area: uniform in `AREA` times the image's. Aspect ratio: log-uniform in `ASPECT`. After ten draws that do not fit,
    the largest central part with an allowed aspect ratio is taken.
    """

    size: int = 224

    def __call__(self, image: Image.Image, choices: random.Random) -> Image.Image:
        """The transformed copy of `image`."""
        from PIL import ImageOps

        left, top, width, height = self.box(image.width, image.height, choices)
        part = image.crop((left, top, left + width, top + height)).resize((self.size, self.size), BILINEAR)
        return ImageOps.mirror(part) if choices.random() < 0.5 else part

    def box(self, width: int, height: int, choices: random.Random) -> tuple[int, int, int, int]:
        """Left, top, width and height of the part to take; it always lies inside the image."""
        for _ in range(10):
            target = width * height * choices.uniform(*AREA)
            aspect = math.exp(choices.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
            w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if 0 < w <= width and 0 < h <= height:
                return choices.randint(0, width - w), choices.randint(0, height - h), w, h
        w = min(width, max(1, round(height * ASPECT[1])))
        h = min(height, max(1, round(width / ASPECT[0])))
        return (width - w) // 2, (height - h) // 2, w, h


@dataclass(frozen=True)
class ResizeCentreCrop:
    """Shorter side to `resize`, then the central square of `size`. Takes no random choice."""

    resize: int = 256
    size: int = 224

    def __call__(self, image: Image.Image, choices: random.Random) -> Image.Image:
        """The transformed copy of `image`."""
        shorter = min(image.size)
        if max(image.size) > LONGEST * shorter:
            image = _centre(image, *(min(side, LONGEST * shorter) for side in image.size))
        width, height = (max(self.resize, int(self.resize * side / shorter)) for side in image.size)
        return _centre(image.resize((width, height), BILINEAR), self.size, self.size)


def _centre(image: Image.Image, width: int, height: int) -> Image.Image:
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))

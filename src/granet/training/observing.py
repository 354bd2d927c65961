"""The observers of a run, and the images that some of them look at."""

from __future__ import annotations

from torch import Tensor, nn

from granet.observers import Observers, need_images, without_masks
from granet.sparsifier import Sparsifier
from granet.training.feeds import Feed
from granet.training.recipe import Recipe

WATCHED_IMAGES = 128
"""Images that observers of activations look at."""


def observe(recipe: Recipe, model: nn.Module, sparsifier: Sparsifier | None, feed: Feed) -> Observers | None:
    """What the recipe asks to watch; in a dense run, what does not need masks."""
    names = recipe.observe if sparsifier is not None else without_masks(recipe.observe)
    if not names:
        return None
    return Observers(names, model, sparsifier, _fixed_images(feed) if need_images(names) else None)


def _fixed_images(feed: Feed) -> Tensor:
    """The first validation images, or without a validation part the first training images of the seed's first epoch."""
    if feed.val is not None:
        images, _ = next(iter(feed.val))
        return feed.normalise(images[:WATCHED_IMAGES]).float()
    before = feed.train.random_state
    images, _ = next(iter(feed.train.epoch()))
    feed.train.random_state = before
    return images[:WATCHED_IMAGES].float()

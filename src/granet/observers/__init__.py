"""Watching a network change: small observers for any training loop, off unless asked for."""

from granet.observers.base import Observer, Watched
from granet.observers.group import OBSERVERS, Observers, check_observer, need_images, without_masks

__all__ = ["OBSERVERS", "Observer", "Observers", "Watched", "check_observer", "need_images", "without_masks"]

"""Binds a method to a model and an optimizer: the hooks around a step, the masks, and their state."""

from granet.sparsifier.bind import sparsify
from granet.sparsifier.history import UpdateRecord
from granet.sparsifier.sparsifier import Sparsifier, steps_of

__all__ = ["Sparsifier", "UpdateRecord", "sparsify", "steps_of"]

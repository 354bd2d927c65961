"""Whole filters: what else of a model is zero once they are dropped, and how that is found out."""

from granet.sparsifier.filters.finding import find_followers
from granet.sparsifier.filters.followers import Followers, Held

__all__ = ["Followers", "Held", "find_followers"]

"""Whole filters: what else of a model is zero once they are dropped, and how that is found out."""

from granet.sparsifier.filters.followers import Followers, Held, find_followers

__all__ = ["Followers", "Held", "find_followers"]

"""Whole filters: what else of a model is zero once they are dropped, and how that is found out."""

from granet.sparsifier.filters.followers import Followers, find_followers

__all__ = ["Followers", "find_followers"]

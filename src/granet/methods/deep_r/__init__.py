"""Deep-R: the method, and the random walk that every step of it takes, with its kernel."""

from granet.methods.deep_r.deep_r import DeepR

__all__ = ["DeepR"]

"""The sparse weights of a model together: the moves of methods, the masks these propose, the same under a pattern."""

from granet.net.pattern_net import make_net
from granet.net.sparse_net import Scope, SparseNet

__all__ = ["Scope", "SparseNet", "make_net"]

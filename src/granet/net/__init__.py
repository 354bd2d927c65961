"""All sparse weights of a model: the moves that methods make, the masks these propose, and the same under a pattern."""

from granet.net.change import Change
from granet.net.pattern_net import make_net
from granet.net.sparse_net import SparseNet

__all__ = ["Change", "SparseNet", "make_net"]

"""Which weights of a model are sparse, and one small object for each."""

from granet.weights.candidates import SPARSIFIABLE
from granet.weights.choice import find_layers
from granet.weights.layer import SparseLayer, count_active, gradients_of, lay_in_a_row
from granet.weights.names import plain_name, unwrapped

__all__ = [
    "SPARSIFIABLE",
    "SparseLayer",
    "count_active",
    "find_layers",
    "gradients_of",
    "lay_in_a_row",
    "plain_name",
    "unwrapped",
]

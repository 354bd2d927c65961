"""Which weights of a model are sparse, and one small object for each."""

from granet.weights.candidates import SPARSIFIABLE, orientation_in
from granet.weights.choice import find_layers
from granet.weights.identity import WeightId
from granet.weights.layer import SparseLayer, count_active, gradients_of, lay_in_a_row
from granet.weights.masked import Follower, Masked
from granet.weights.names import plain_name, unwrapped
from granet.weights.orientation import ROWS_FIRST, Orientation

__all__ = [
    "ROWS_FIRST",
    "SPARSIFIABLE",
    "Follower",
    "Masked",
    "Orientation",
    "SparseLayer",
    "WeightId",
    "count_active",
    "find_layers",
    "gradients_of",
    "lay_in_a_row",
    "orientation_in",
    "plain_name",
    "unwrapped",
]

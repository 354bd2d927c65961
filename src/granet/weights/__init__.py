"""Which weights of a model are sparse, and one small object for each."""

from granet.weights.choice import find_layers
from granet.weights.coverage import Coverage, coverage_of
from granet.weights.identity import WeightId
from granet.weights.kinds import linear_maps, register_weights, weights_in
from granet.weights.layer import Masked, SparseLayer, count_active, gradients_of, lay_in_a_row
from granet.weights.orientation import Orientation

__all__ = [
    "Coverage",
    "Masked",
    "Orientation",
    "SparseLayer",
    "WeightId",
    "count_active",
    "coverage_of",
    "find_layers",
    "gradients_of",
    "lay_in_a_row",
    "linear_maps",
    "register_weights",
    "weights_in",
]

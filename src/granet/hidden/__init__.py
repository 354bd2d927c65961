"""What an optimizer trains behind the weights that a model shows: dense values, thresholds, noise."""

from granet.hidden.base import Hidden, as_it_is
from granet.hidden.extras import drop_emptied, groups_of, without_emptied
from granet.hidden.noise import VariationalNoise
from granet.hidden.threshold import SoftThreshold
from granet.hidden.weights import FedBackWeights, FrozenWeights

__all__ = [
    "FedBackWeights",
    "FrozenWeights",
    "Hidden",
    "SoftThreshold",
    "VariationalNoise",
    "as_it_is",
    "drop_emptied",
    "groups_of",
    "without_emptied",
]

"""Which channels of a model depend on which: for filter patterns, and for whatever makes a network smaller."""

from granet.channels.silence import Flow
from granet.channels.traced import trace_channels

__all__ = ["Flow", "trace_channels"]

"""Which channels of a model depend on which: for filter patterns, and for whatever makes a network smaller."""

from granet.channels.constants import find_constants
from granet.channels.coupled import Coupling, Read
from granet.channels.coupling import couple
from granet.channels.exported import Exported, export
from granet.channels.finding import find_followers
from granet.channels.followers import Followers, Held
from granet.channels.lifted import lift
from granet.channels.program import aside, program_of
from granet.channels.silence import Flow
from granet.channels.traced import trace_channels

__all__ = [
    "Coupling",
    "Exported",
    "Flow",
    "Followers",
    "Held",
    "Read",
    "aside",
    "couple",
    "export",
    "find_constants",
    "find_followers",
    "lift",
    "program_of",
    "trace_channels",
]

"""The masks that a method begins with, chosen while the model stands still."""

from __future__ import annotations

from granet.methods import Method
from granet.net import SparseNet
from granet.probe import Probe
from granet.probe.trained import take_over


def choose_masks(method: Method, net: SparseNet, probe: Probe) -> None:
    """Let the method choose the first masks of the net.

    Weights are written only where the method begins from another state than the model's own, as after a finished first
    run. Bringing them in line with the masks is left to the caller.
    """
    net.open(draw=0)
    net.probe = probe
    method.begin(net)
    net.commit().write_masks()
    del net.probe
    if net.start is not None:
        take_over(probe.model, net.start)
        net.start = None

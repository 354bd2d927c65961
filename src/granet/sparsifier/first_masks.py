"""The masks that a method begins with, chosen while the model stands still."""

from __future__ import annotations

import torch

from granet.methods import Method
from granet.net import SparseNet
from granet.probe import Probe
from granet.probe.trained import take_over
from granet.sparsifier.memory import Layout, memory_layout


def choose_masks(method: Method, net: SparseNet, probe: Probe) -> Layout:
    """Let the method choose the first masks of the net; returns the layout of what it keeps from now on.

    Weights are written only where the method begins from another state than the model's own, as after a finished first
    run. Bringing them in line with the masks is left to the caller.
    """
    net.open(draw=0, movable=net.layers, accept=torch.tensor(True, device=net.device))
    net.probe = probe
    method.begin(net)
    layout = memory_layout(net)
    net.commit()
    del net.probe
    if net.start is not None:
        take_over(probe.model, net.start)
        net.start = None
    return layout

"""What a method may look at before the first step, without changing anything: batches, gradients, a first run."""

from granet.probe.layer_calls import LayerCall, watch_calls
from granet.probe.modes import run_with
from granet.probe.probe import Batch, Loss, Probe, Tensors, full_precision

__all__ = ["Batch", "LayerCall", "Loss", "Probe", "Tensors", "full_precision", "run_with", "watch_calls"]

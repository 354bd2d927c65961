"""What a method may look at before the first step, without changing anything: batches, gradients, a first run."""

from granet.probe.layer_calls import LayerCall, watch_calls
from granet.probe.probe import Batch, Loss, Probe, Tensors, each_tensor, full_precision

__all__ = ["Batch", "LayerCall", "Loss", "Probe", "Tensors", "each_tensor", "full_precision", "watch_calls"]

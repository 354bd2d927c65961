"""What a method may look at before the first step, which changes nothing: batches, gradients, a finished first run."""

from granet.probe.probe import Batch, Loss, Probe, Tensors, each_tensor, full_precision

__all__ = ["Batch", "Loss", "Probe", "Tensors", "each_tensor", "full_precision"]

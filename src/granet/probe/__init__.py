"""What a method may look at before the first step, without changing anything: batches, gradients, a first run."""

from granet.probe.probe import Batch, Loss, Probe, Tensors, each_tensor, full_precision

__all__ = ["Batch", "Loss", "Probe", "Tensors", "each_tensor", "full_precision"]

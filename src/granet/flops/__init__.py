"""FLOPs of one inference pass, and of a whole training under masks that change."""

from granet.flops.counter import flops
from granet.flops.report import FixedFlops, FlopsReport, LayerFlops
from granet.flops.training import TrainingCost, TrainingFlops

__all__ = ["FixedFlops", "FlopsReport", "LayerFlops", "TrainingCost", "TrainingFlops", "flops"]

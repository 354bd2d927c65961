"""FLOPs of one inference pass, and of a whole training under masks that change."""

from granet.flop_counting.counter import flops
from granet.flop_counting.report import FixedFlops, FlopsReport, LayerFlops
from granet.flop_counting.training import TrainingCost, TrainingFlops

__all__ = ["FixedFlops", "FlopsReport", "LayerFlops", "TrainingCost", "TrainingFlops", "flops"]

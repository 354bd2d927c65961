"""SNIP: prune before training the connections that the loss depends on least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.checks import check_count
from granet.methods.base import Method
from granet.methods.registry import register
from granet.net import SparseNet
from granet.scores import given


@register(
    "snip",
    paper="Lee et al. 2019, arXiv 1810.02340",
    score="size of w * gradient",
    distributed="global",
    cost="`batch_count` passes forward and back, before training",
    before_training=True,
)
@dataclass(frozen=True, kw_only=True)
class SNIP(Method):
    """Prune before training what the loss feels least: keep the largest |w dL/dw| of the whole net.

    The gradient is summed over ``batch_count`` batches first, the absolute value is taken last. The model runs in
    training mode, as it will in the first step: batch norm uses the statistics of the batch. (The authors' TensorFlow
    code scores in inference mode and prunes biases too; here biases stay dense, as for every method.) The mode decides
    which layers keep their weights: in a VGG-19 for CIFAR-10 at 98 %, the last four convolutions each keep 36 to 1264
    of their 2.4 million weights as scored here, but 37,605 to 54,822 in inference mode with fresh batch norm (two
    seeds).
    """

    batch_count: int = 1
    """How many batches the gradient is summed over."""

    needs_batches: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("batch_count", self.batch_count)

    def begin(self, net: SparseNet) -> None:
        gradient = net.probe.gradient(net.probe.draw(self.batch_count))
        sensitivity = {layer.name: layer.weight.detach().double() * gradient[layer.name] for layer in net.layers}
        net.prune_to(self.sparsity, given(net.probe.finite(sensitivity, "loss")))

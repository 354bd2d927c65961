"""GraSP: prune before training, by what connections do for the gradient flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from granet.checks import check_count, check_number
from granet.methods.base import Method
from granet.methods.registry import register
from granet.net import SparseNet
from granet.scores import given, in_order


@register(
    "grasp",
    paper="Wang et al. 2020, arXiv 2002.07376",
    score="w * (Hessian * gradient), signed",
    distributed="global",
    cost="`batch_count` gradients and Hessian products, before training",
    before_training=True,
)
@dataclass(frozen=True, kw_only=True)
class GraSP(Method):
    """Prune before training what hinders gradient flow, or helps it least: remove the largest -w (Hg) of the whole net.

    g is the gradient and H the Hessian of the loss, so to first order -2w (Hg) is how much g^T g grows when w is
    removed. The model's outputs are divided by ``temperature``, which softens the predictions of an untrained net. g is
    summed over all batches first, then Hg is, one batch at a time and in training mode, so memory holds one batch. A
    block or filter has the mean score of its weights, with its sign. (The authors' code scores a copy whose linear
    layers are drawn anew; here the scored weights are those that will be trained.)
    """

    batch_count: int = 1
    """How many batches g and Hg are summed over; the authors take ten images of every class."""
    temperature: float = 200.0

    needs_batches: ClassVar[bool] = True
    takes_pattern: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("batch_count", self.batch_count)
        check_number("temperature", self.temperature, above=0)

    def begin(self, net: SparseNet) -> None:
        batches = net.probe.draw(self.batch_count)
        gradient = net.probe.gradient(batches, self.temperature)
        product = net.probe.hessian_product(batches, gradient, self.temperature)
        kept_flow = {
            layer.name: net.units.mean(layer, layer.weight.detach().double() * product[layer.name])
            for layer in net.layers
        }
        net.prune_to(self.sparsity, given(in_order(net.probe.finite(kept_flow, "loss"))))

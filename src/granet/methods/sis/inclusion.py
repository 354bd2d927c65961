"""The smallest weights that keep a layer's outputs near what they were: a subdifferential inclusion problem.

Most activations are proximity operators: y = prox_f(z) for a convex f, which is to say that z - y lies in the
subdifferential of f at y. Weights W keep the outputs y when that holds for z = Wx + b, and nearly keep them when z - y
is near that set (Verma & Pesquet, ICML 2021). For ReLU the set is {0} where y > 0, and (-inf, 0] where y = 0: outputs
that are off may sink further at no cost. Without an activation it is {0}.

The problem solved is

    minimise |W|_1  subject to  D_j(W) <= tolerance^2 D_j(0)  for every batch j,

with D_j(W) the squared distance of z - y to the subdifferential, summed over the batch. D_j(0) is what removing the
whole layer costs, so tolerance 0 allows no change and tolerance 1 any.

The paper has the formulation as an inclusion, the use of its accuracy to set the sparsity, and the solution by proximal
splitting, a batch at a time. The rest is our reading: the tolerance relative to D_j(0), the bias left as it is, and the
splitting, which is the primal-dual one of Chambolle & Pock (2011). It applies because z is linear in W, the l1 norm has
the soft threshold as its proximity operator, and the projection onto the constraint on z has a closed form. For whole
blocks or filters the norm is that of the group lasso, the sum of sqrt(n) |W_u|_2 over units u of n weights, which is
the l1 norm for units of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softshrink


@dataclass(frozen=True)
class Constraint:
    """Outputs to keep on one batch: the distance of z(W) - y to the subdifferential at y is at most ``bound``."""

    preactivation: Callable[[Tensor], Tensor]
    """z(W), linear up to a constant."""
    outputs: Tensor
    rectified: bool
    bound: float

    def excess(self, z: Tensor) -> Tensor:
        """z minus its projection onto all z that meet the constraint."""
        gap = inclusion_gap(z, self.outputs, self.rectified)
        distance = torch.linalg.vector_norm(gap).clamp(min=max(self.bound, torch.finfo(z.dtype).tiny))
        excess: Tensor = gap * (1 - self.bound / distance)
        return excess


def inclusion_gap(z: Tensor, y: Tensor, rectified: bool) -> Tensor:
    """z - y minus its projection onto the subdifferential at y."""
    gap = z - y
    return torch.where(y > 0, gap, z.clamp(min=0)) if rectified else gap


def constraint(
    preactivation: Callable[[Tensor], Tensor], weight: Tensor, rectified: bool, tolerance: float
) -> Constraint:
    """The outputs that ``weight`` gives, to be kept within a share of what weights of zero would change."""
    with torch.no_grad():
        outputs = preactivation(weight)
        outputs = outputs.relu() if rectified else outputs
        removed = inclusion_gap(preactivation(torch.zeros_like(weight)), outputs, rectified)
    return Constraint(preactivation, outputs, rectified, tolerance * float(removed.norm()))


def least_weights(
    weight: Tensor,
    constraints: Sequence[Constraint],
    tolerance: float,
    iterations: int,
    shrink: Callable[[Tensor, float], Tensor] = softshrink,
) -> Tensor:
    """Weights of least l1 norm that meet the constraints, nearly: the splitting is begun at ``weight`` and cut off.

    ``shrink`` is the proximity operator of the norm; another one minimises another norm.

    The primal step decides how fast the splitting converges, not where. It grows with ``tolerance``, as does the
    distance that the weights have to move; tolerance / 2 times the mean |weight| worked well. The dual step is then the
    largest for which it converges.
    """
    step = max(0.01, tolerance / 2) * float(weight.abs().mean())
    if step == 0 or (norm := largest_singular_value(weight, constraints)) == 0:
        return torch.zeros_like(weight)
    dual_step = 1 / (step * norm**2)
    current, leading = weight.detach(), weight.detach()
    duals = [torch.zeros_like(one.outputs) for one in constraints]
    for _ in range(iterations):
        pull = torch.zeros_like(weight)
        for j, one in enumerate(constraints):
            z, back = _linear(one, leading)
            duals[j] = dual_step * one.excess(duals[j] / dual_step + z)
            pull += back(duals[j])
        previous, current = current, shrink(current - step * pull, step)
        leading = 2 * current - previous
    return current


def largest_singular_value(weight: Tensor, constraints: Sequence[Constraint], iterations: int = 20) -> float:
    """Of the linear map from W to all z, by the power method; a few percent more, to be on the safe side."""
    direction = torch.ones_like(weight) + weight / (2 * weight.abs().amax())  # has no zeros, whatever the signs
    for _ in range(iterations):
        direction = direction / direction.norm()
        image = torch.zeros_like(weight)
        for one in constraints:
            z, back = _linear(one, direction)
            with torch.no_grad():
                image += back(z - one.preactivation(torch.zeros_like(weight)))
        if not bool(image.any()):
            return 0.0
        direction = image
    return 1.05 * math.sqrt(float(direction.norm()))


def _linear(one: Constraint, weight: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """z(W), and the transpose of the linear map in it."""
    with torch.enable_grad():
        leaf = weight.detach().requires_grad_()
        z = one.preactivation(leaf)
    return z.detach(), lambda dual: torch.autograd.grad(z, leaf, dual)[0]

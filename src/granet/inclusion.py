"""The sparsest weights of a layer that leave its outputs near what they were: a subdifferential inclusion problem.

Most activations are proximity operators: y = prox_f(z) for a convex f, which is to say z - y lies in the subdifferential
of f at y. Weights W keep the outputs y when that holds for z = Wx + b, and nearly keep them when z - y is near that set
(Verma & Pesquet, ICML 2021). For ReLU the set is {0} where y > 0, and all of (-inf, 0] where y = 0: what is switched off
may sink further at no cost. For no activation it is {0}.

The problem solved is

    minimise |W|_1  subject to  D_j(W) <= tolerance^2 D_j(0)  for every batch j,

with D_j the squared distance of z - y to the subdifferential, summed over the batch. D_j(0) is what removing the whole
layer costs, so tolerance 0 allows no change and tolerance 1 any. The idea and the constraint are the paper's. How they
are spelled out is our reading: the tolerance relative to D_j(0), the bias left as it is, Douglas-Rachford splitting
between the l1 norm and the constraints, and the projection onto the constraints by anchored subgradient steps, a
batch at a time (Haugazeau's scheme, as in Bauschke & Combettes, "Convex Analysis and Monotone Operator Theory").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softshrink


@dataclass(frozen=True)
class Constraint:
    """D_j(W) <= bound for one batch, D_j being ``distance``."""

    distance: Callable[[Tensor], Tensor]
    bound: float

    def cut(self, point: Tensor) -> Tensor | None:
        """The nearest point of a half-space that holds all that meets the constraint; None where it is met already."""
        with torch.enable_grad():
            leaf = point.detach().requires_grad_()
            excess = self.distance(leaf) - self.bound
            (slope,) = torch.autograd.grad(excess, leaf)
        steepness = slope.square().sum()
        if not (excess > 0 and steepness > 0):
            return None
        return point - slope * (excess.detach() / steepness)


def squared_distance(z: Tensor, y: Tensor, rectified: bool) -> Tensor:
    """Of z - y to the subdifferential at y, summed over all elements."""
    gap = z - y
    if rectified:
        gap = torch.where(y > 0, gap, gap.clamp(min=0))
    return gap.square().sum()


@torch.no_grad()
def sparsest(weight: Tensor, constraints: Sequence[Constraint], iterations: int, passes: int) -> Tensor:
    """Weights of least l1 norm that meet the constraints, by Douglas-Rachford splitting from ``weight``.

    The threshold decides how fast the iterations converge, not where to; the mean |w| suits weights of any scale.
    """
    threshold = float(weight.abs().mean())
    point = weight
    for _ in range(iterations):
        sparse = softshrink(point, threshold)
        point = point + project(2 * sparse - point, constraints, passes) - sparse
    return softshrink(point, threshold)


def project(anchor: Tensor, constraints: Sequence[Constraint], passes: int) -> Tensor:
    """Nearly the point nearest to ``anchor`` that meets all constraints, after that many passes over them."""
    point = anchor
    for _ in range(passes):
        met = True
        for constraint in constraints:
            cut = constraint.cut(point)
            if cut is not None:
                met = False
                point = _anchored(anchor, point, cut)
        if met:
            break
    return point


def _anchored(anchor: Tensor, point: Tensor, cut: Tensor) -> Tensor:
    """The point nearest to ``anchor`` in two half-spaces: beyond ``point`` as seen from it, and beyond ``cut``."""
    back, on = anchor - point, cut - point
    chi = -float((back * on).sum())
    mu, nu = float(back.square().sum()), float(on.square().sum())
    rho = mu * nu - chi * chi
    if rho <= 1e-12 * mu * nu:  # one behind the other, or the first step
        return cut
    if chi * nu >= rho:
        return anchor + (1 + chi / nu) * on
    return point + (nu / rho) * (chi * back + mu * on)

"""How many directions the outputs of a layer fill."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from granet.observers.activations import look_at_activations
from granet.observers.base import Observer

_ROWS_AT_ONCE = 1 << 16


class EffectiveRank(Observer):
    """Effective rank (Roy & Vetterli 2007) of each activation's outputs on a fixed batch.

    The matrix has a row for each image and each position in it, and a column for each unit; it is not centred. With
    its singular values sigma and p = sigma / sum(sigma), the effective rank is exp(-sum_i p_i ln p_i): the rank of a
    matrix with equal singular values, and less the more they differ.

    - ``share``: effective rank over the largest possible one, min(rows, columns), averaged over activations;
    - ``last``: the effective rank of the last activation's outputs, from which most models classify.
    """

    cost: ClassVar[str] = "one forward pass of a small batch at the end of an epoch; for each layer units² x places"
    needs_images: ClassVar[bool] = True
    needs_activations: ClassVar[bool] = True

    def epoch(self) -> dict[str, float]:
        ranks = look_at_activations(self.watched, lambda units: (effective_rank(units), min(units.shape)))
        if any(math.isnan(rank) for rank, _ in ranks):
            return {}
        return {"share": sum(rank / most for rank, most in ranks) / len(ranks), "last": ranks[-1][0]}


def effective_rank(matrix: Tensor) -> float:
    """exp of the entropy of the normalised singular values; 0 of a matrix of zeros, NaN if anything is not finite.

    The singular values are the square roots of the eigenvalues of the smaller Gram matrix, in double precision. Those
    that are zero up to rounding count as zero.

    >>> round(effective_rank(torch.diag(torch.tensor([2.0, 2.0, 0.0]))), 6)
    2.0
    """
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
    small = wide.shape[0]
    gram = torch.zeros(small, small, dtype=torch.float64, device=matrix.device)
    for part in torch.split(wide, _ROWS_AT_ONCE, dim=1):  # the whole matrix in double precision may be too large
        part = part.double()
        gram += part @ part.mT
    if not gram.isfinite().all():
        return math.nan
    values = torch.linalg.eigvalsh(gram)
    largest = values[-1]
    if largest <= 0:
        return 0.0
    values = torch.where(values > small * torch.finfo(values.dtype).eps * largest, values, 0.0).sqrt()
    return math.exp(torch.special.entr(values / values.sum()).sum().item())

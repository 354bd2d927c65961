"""Rankings whose winners keep to a pattern. All counts are numbers of weights, in multiples of the layers' quanta.

Everything is decided on the device and by the same rules as in `granet.selection`: of equal scores the earlier wins,
and NaN ranks above infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from granet.net.division import nearest_multiple, rounded
from granet.patterns import Groups
from granet.selection import Candidates, rank
from granet.tensors.transfer import constant
from granet.weights import SparseLayer


class BlockRanking:
    """Candidates are blocks, given by one score and one mask entry each; ``sizes`` are the weights of a block."""

    def __init__(
        self, scores: Sequence[Tensor], masks: Sequence[Tensor], sizes: Sequence[int], candidates: Candidates
    ) -> None:
        self._scores, self._masks, self._sizes = scores, masks, sizes
        self._blocks = rank(scores, masks, candidates)

    def select(self, counts: Tensor) -> None:
        self._blocks.select(counts // constant(self._sizes, counts.device))

    def global_counts(self, total: Tensor, floors: Tensor) -> Tensor:
        """The best blocks of all layers together: as many as bring their weights nearest to ``total``."""
        sizes = constant(self._sizes, floors.device)
        floors = floors // sizes
        if len(set(self._sizes)) == 1:
            size = self._sizes[0]
            return self._blocks.global_counts(nearest_multiple(total, size) // size, floors) * sizes
        return self._nearest(total, floors, sizes) * sizes

    def _nearest(self, total: Tensor, floors: Tensor, sizes: Tensor) -> Tensor:
        """Line up blocks of different sizes (filters: few enough to sort) and find where to cut the line.

        First come those that the floors ask for, then all others from best to worst. The cut is where the weights
        before it are nearest to ``total``.
        """
        device, lengths = sizes.device, [len(score) for score in self._scores]
        layer = torch.repeat_interleave(
            constant(range(len(lengths)), device), constant(lengths, device), output_size=sum(lengths)
        )
        begin = constant([sum(lengths[:i]) for i in range(len(lengths))], device)
        place = torch.arange(sum(lengths), device=device)
        candidates = torch.cat([mask.to(device) for mask in self._masks])
        values = torch.cat([score.to(device).abs() for score in self._scores])
        best_first = torch.where(candidates, values, -1).argsort(descending=True, stable=True)
        by_layer = best_first[layer[best_first].argsort(stable=True)]
        within = torch.empty_like(place).scatter_(0, by_layer, place - begin[layer[by_layer]])
        asked = (within < floors[layer]) & candidates
        line = best_first[(~asked[best_first]).to(torch.uint8).argsort(stable=True)]
        before = pad((sizes[layer] * candidates)[line].cumsum(0), (1, 0))
        too_few = torch.arange(len(before), device=device) < asked.sum()
        cut = torch.where(too_few, torch.iinfo(torch.int64).max, (before - total).abs()).argmin()
        return torch.zeros_like(sizes).index_add(0, layer[line], (place < cut).long())


@dataclass(frozen=True, eq=False)
class GroupRanking:
    """Candidates are single weights, but all groups of a layer end up with the same number of active ones."""

    pattern: Groups
    layers: Sequence[SparseLayer]
    scores: Sequence[Tensor]
    masks: Sequence[Tensor]
    candidates: Candidates

    def select(self, counts: Tensor) -> None:
        """Thin the groups out, or fill them up, each by the best candidates it has itself."""
        for layer, score, mask, count in zip(self.layers, self.scores, self.masks, counts.unbind(), strict=True):
            active = self.pattern.split(layer, mask.view(score.shape))
            values = self.pattern.split(layer, score)
            groups, count = len(active), count.to(mask.device)
            if self.candidates == "active":
                chosen = best_of_rows(values, active, (count // groups).expand(groups))
            else:
                there = active.sum(1)
                chosen = active | best_of_rows(values, ~active, (there.sum() + count) // groups - there)
            mask.copy_(self.pattern.join(layer, chosen).reshape(-1))

    def global_counts(self, total: Tensor, floors: Tensor) -> Tensor:
        """As for single weights, then rounded to whole quanta."""
        quanta = constant([self.pattern.quantum(layer) for layer in self.layers], floors.device)
        free = rank(self.scores, self.masks, "active").global_counts(total, floors)
        return rounded(free.double(), quanta, total)


def best_of_rows(scores: Tensor, candidates: Tensor, counts: Tensor) -> Tensor:
    """[rows, columns] -> bool: in each row the ``counts[row]`` candidates with the largest absolute scores."""
    order = torch.where(candidates, scores.abs(), -1).sort(dim=1, descending=True, stable=True).indices
    first = torch.arange(scores.shape[1], device=scores.device) < counts[:, None]
    return torch.zeros_like(candidates).scatter_(1, order, first) & candidates

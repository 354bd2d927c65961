"""Sparse weights that keep to a pattern: the same moves as on single weights, in whole quanta.

A layer's count of active weights is always a multiple of its quantum. The total is as near to the requested one as
rounding by largest remainder, or cutting a ranking, can bring it; the achieved sparsity shows the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from granet.distributions import Distribution, Uniform, kept
from granet.net.pattern_ranking import BlockRanking, GroupRanking
from granet.net.sparse_net import SparseNet
from granet.patterns import Blocks, Groups, check_fit, parse_pattern
from granet.scores import Score
from granet.selection import Candidates, Ranking, rank
from granet.weights import SparseLayer


def make_net(layers: Sequence[SparseLayer], floor: int, pattern: str, sparsity: float) -> SparseNet:
    """The layers as a net whose masks keep to that pattern, on their way to that sparsity.

    ValueError if the floors of all layers together are more than the sparsity leaves, or one is more than N:M leaves.
    """
    parsed = parse_pattern(pattern)
    if parsed is not None:
        check_fit(parsed, layers)
    kind = BlockNet if isinstance(parsed, Blocks) else GroupNet if isinstance(parsed, Groups) else SparseNet
    net = kind(layers, floor, parsed)
    floors, keep = sum(net.floors), kept(net.numel, sparsity)
    if floors > keep:
        given = f"floor={floor}" if parsed is None else f"pattern={pattern!r} with floor={floor}"
        raise ValueError(
            f"sparsity={sparsity!r}: leaves {keep} weights; {given} needs {floors} in {len(layers)} layers"
        )
    if isinstance(net, GroupNet) and net.pattern.keep:
        for layer, least, left in zip(layers, net.floors, net.shares(sparsity, Uniform()), strict=True):
            if least > left:
                raise ValueError(f"floor={floor}: must be at most {left}, what {pattern!r} leaves in {layer.name!r}")
    return net


class BlockNet(SparseNet):
    """Blocks or filters. A proposal has one mask entry for each block; writing it spreads these to the weights."""

    pattern: Blocks

    def _present(self) -> list[Tensor]:
        return [self._by_unit(layer, layer.mask) for layer in self.movable]

    def _weight_by_weight(self) -> list[Tensor]:
        pairs = zip(self.movable, self._proposed, strict=True)
        return [self.pattern.spread(layer, units).reshape(-1) for layer, units in pairs]

    @property
    def _unit_sizes(self) -> Tensor:
        return self.quanta

    def _by_unit(self, layer: SparseLayer, mask: Tensor) -> Tensor:
        return self.pattern.units(layer, mask)

    def _scores(self, score: Score) -> list[Tensor]:
        return [self.pattern.pool(layer, self._score_of(layer, score)) for layer in self.movable]

    def _rank(self, score: Score, candidates: Candidates) -> Ranking:
        sizes = [self._quanta[layer.index] for layer in self.movable]
        return BlockRanking(self._scores(score), self._proposed, sizes, candidates)


class GroupNet(SparseNet):
    """N:M, or constant fan-in: pruning thins all groups of a layer alike.

    What regenerates goes anywhere in a layer, then each group grows back as many as it lost. This is SRigL's update
    (Lasby et al., 2023) without its ablation of neurons. Weights just dropped may return.
    """

    pattern: Groups

    @torch.no_grad()
    def prune_to(self, sparsity: float, score: Score, distribution: Distribution | None = None) -> None:
        # N:M leaves the layers nothing to share: all get the same density.
        super().prune_to(sparsity, score, Uniform() if self.pattern.keep else distribution)

    def shares(self, sparsity: float, distribution: Distribution) -> list[int]:
        """Under N:M all groups keep the same number: the nearest to what that sparsity leaves of M, at least N."""
        if self.pattern.size is None or self.pattern.keep is None:
            return super().shares(sparsity, distribution)
        each = max(kept(self.pattern.size, sparsity), self.pattern.keep)
        return [each * groups for groups in self._quanta]

    def _begin_regenerating(self, drop: Score) -> None:
        self._finish_thinning()
        self._thinning = drop, rank(self._scores(drop), self._proposed, "active")

    def _rank(self, score: Score, candidates: Candidates) -> Ranking:
        return GroupRanking(self.pattern, self.movable, self._scores(score), self._proposed, candidates)

"""All sparse weights of a model, and the moves that every method is made of.

A method proposes new masks here; it never touches a weight. The sparsifier opens the proposal and commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from statistics import fmean

import torch
from torch import Tensor

from granet.distributions import Distribution, PruningDistribution, counts, kept, layer_densities
from granet.net.division import divide, nearest_multiple
from granet.net.proposal import ProposedMasks, flat_copies
from granet.scores import Score, magnitude, random
from granet.selection import fill
from granet.tensors.row import nonzero
from granet.tensors.transfer import to_device


class SparseNet(ProposedMasks):
    """The moves of a proposal. Each decides how many weights of each layer are to be active, and by which score."""

    @torch.no_grad()
    def sprout(self, sparsity: float, distribution: Distribution) -> None:
        """Random masks with exact layer counts, the start of sparse-to-sparse training."""
        self.prune_to(sparsity, random, distribution)

    @torch.no_grad()
    def prune_to(self, sparsity: float, score: Score, distribution: Distribution | None = None) -> None:
        """Keep the active weights with the largest scores, so that the net has this sparsity.

        ``distribution`` says how the layers share what is kept; None ranks all layers together (global pruning). A net
        that is sparser already is left as it is.
        """
        before = self.counts
        ranking = self._begin_thinning(score)
        if distribution is None:
            budget = ranking.global_counts(self._left_by(sparsity), self._floors)
        else:
            shares = self.of_movable(to_device(self.shares(sparsity, distribution), self.device))
            # A share may be rounded to more than its layer has left; the other layers then keep the difference.
            budget = nearest_multiple(fill(torch.minimum(shares, before), before, shares.sum()), self.quanta)
        self.counts = torch.where(self.accept, budget, before)
        self.pruned = self.pruned + (before - self.counts).sum()

    @torch.no_grad()
    def keep_nonzero(self) -> None:
        """Switch off the weights that are zero, so that a net that was trained sparse keeps its masks."""
        self._begin_thinning(magnitude)
        self.counts = nonzero(self._scores(magnitude), self.device) * self._unit_sizes

    @torch.no_grad()
    def prune_share(self, rate: float, score: Score, distribution: PruningDistribution) -> None:
        """Switch off ``rate`` of the weights that are left: of all layers together (global), or of each (uniform)."""
        if distribution == "uniform":
            self.drop_share(rate, score, torch.round)
            return
        left = int(self.counts.sum())
        self.prune_to(1 - kept(left, rate) / self.numel, score)

    @torch.no_grad()
    def proposed(self) -> dict[str, Tensor]:
        """The masks as proposed so far, in the shapes of the weights; not to be written to."""
        self._finish_thinning()
        pairs = zip(self.movable, self._weight_by_weight(), strict=True)
        return {layer.name: mask.view(layer.weight.shape) for layer, mask in pairs}

    @torch.no_grad()
    def reselect(self, sparsity: float, score: Score, distribution: Distribution | None = None) -> None:
        """As :meth:`prune_to`, but every weight is a candidate: one that was switched off may return.

        ``pruned`` grows by the decrease in active weights, ``regrown`` by the number that returned.
        """
        self._finish_thinning()
        masks, counts, pruned = flat_copies(self._proposed), self.counts, self.pruned
        for mask in self._proposed:
            mask |= self.accept.to(mask.device)
        self.counts = counts + self.room * self.accept
        self.prune_to(sparsity, score, distribution)
        self._finish_thinning()
        self.pruned = pruned + counts.sum() - self.counts.sum()
        came = nonzero((mask & ~before for mask, before in zip(self._proposed, masks, strict=True)), self.device)
        self.regrown = self.regrown + (came * self._unit_sizes).sum()

    @torch.no_grad()
    def recount(self) -> None:
        """Count the active weights anew, after masks have changed in other ways than by moves.

        Nothing is pruned or regrown. Layers that cannot move in this proposal are counted too.
        """
        self.active = nonzero((layer.mask for layer in self.layers), self.device)
        self.counts = self.of_movable(self.active)

    @torch.no_grad()
    def grow_to_floor(self, score: Score) -> None:
        """Let layers with fewer active weights than the floor grow to it, by the largest scores."""
        self._grow((self._floors - self.counts).clamp(min=0), score)

    @torch.no_grad()
    def regenerate(
        self, ratio: float, drop: Score, grow: Score, rounding: Callable[[Tensor], Tensor] = torch.ceil
    ) -> None:
        """In each layer drop ``ratio`` of the active weights and grow as many.

        Weights with the smallest ``drop`` scores go. Inactive weights with the largest ``grow`` scores come, those just
        dropped included; a weight that is dropped and grown at once counts as never off and keeps its value and
        optimizer state.
        """
        moved = self._portion(ratio, rounding, self._unit_sizes)
        self._begin_regenerating(drop)
        self.counts = self.counts - moved
        self._grow(moved, grow)  # there is room for as many as have gone

    @torch.no_grad()
    def drop(self, counts: Tensor, score: Score) -> Tensor:
        """Switch off ``counts`` weights of each layer, those with the smallest scores; a layer keeps its floor.

        Returns how many it switched off: whole quanta, at most as many as asked, none where a count is below 0.
        """
        going = torch.minimum(_whole_numbers(counts) * self.accept, self.counts - self._floors).clamp(min=0)
        going = going // self.quanta * self.quanta
        self._begin_thinning(score)
        self.counts = self.counts - going
        return going

    def drop_share(self, ratio: float, score: Score, rounding: Callable[[Tensor], Tensor] = torch.ceil) -> Tensor:
        """As :meth:`drop`, ``ratio`` of each layer's active weights, in whole quanta."""
        return self.drop(self._portion(ratio, rounding, self.quanta), score)

    @torch.no_grad()
    def remove(self, where: Sequence[Tensor]) -> Tensor:
        """Switch off the active weights at these places of each layer, whatever the floor; returns how many went."""
        self._finish_thinning()
        going = []
        for layer, proposed, places in zip(self.movable, self._proposed, where, strict=True):
            units = self._by_unit(layer, places).reshape(-1)
            leaving = (proposed & units).logical_and_(self.accept.to(proposed.device))
            proposed.logical_xor_(leaving)
            going.append(leaving.count_nonzero().to(self.device))
        gone = torch.stack(going) * self._unit_sizes
        self.counts = self.counts - gone
        return gone

    @torch.no_grad()
    def grow(self, counts: Tensor, score: Score) -> None:
        """Switch on ``counts`` inactive weights of each layer, those with the largest scores; at most all there are.

        Counts are rounded down, so that a whole number of quanta is active afterwards.
        """
        after = self.counts + torch.minimum(_whole_numbers(counts) * self.accept, self.room)
        self._grow((after // self.quanta * self.quanta - self.counts).clamp(min=0), score)

    def _grow(self, coming: Tensor, score: Score) -> None:
        self._finish_thinning()
        self._rank_to_grow(score).select(coming)
        self.counts = self.counts + coming
        self.regrown = self.regrown + coming.sum()

    def shares(self, sparsity: float, distribution: Distribution) -> list[int]:
        """The whole numbers of weights that the layers keep; ValueError if there is no such division."""
        total = kept(self.numel, sparsity)
        matrices = [layer.identity.matrices for layer in self.layers]
        of_each = iter(
            layer_densities(distribution, [shape for shapes in matrices for shape in shapes], total / self.numel)
        )
        densities = [fmean(islice(of_each, len(shapes))) for shapes in matrices]
        return counts(self.shapes, densities, total, self.floor, self._quanta)

    # What a method may want to know before it moves; all are tensors with an entry for each movable layer.

    @torch.no_grad()
    def below(self, threshold: Tensor) -> Tensor:
        """Weights of each layer that were active at the start of this proposal and lie below ``threshold`` in size."""
        small = (
            (scores.abs() < threshold.to(scores.device)) & self._by_unit(layer, layer.mask)
            for layer, scores in zip(self.movable, self._scores(magnitude), strict=True)
        )
        return nonzero(small, self.device) * self._unit_sizes

    @torch.no_grad()
    def mean_size(self, score: Score) -> Tensor:
        """The mean absolute score of the weights of each layer that were active at the start of this proposal."""
        sums = [
            torch.where(self._by_unit(layer, layer.mask), scores, 0).abs().sum(dtype=torch.float64).to(self.device)
            for layer, scores in zip(self.movable, self._scores(score), strict=True)
        ]
        return torch.stack(sums) * self._unit_sizes / self.of_movable(self.active).clamp(min=1)

    def lacking(self, sparsity: float) -> Tensor:
        """How many active weights the proposal lacks at that sparsity; 0 if it has enough."""
        return (self._left_by(sparsity) - self.counts.sum()).clamp(min=0)

    def share_out(self, total: Tensor, shares: Tensor) -> Tensor:
        """``total`` weights divided among the layers in proportion to ``shares``, within their room, in quanta."""
        return divide(total, shares, self.room, self.quanta)

    def _left_by(self, sparsity: float) -> Tensor:
        """How many weights that sparsity leaves in the movable layers, given the others."""
        total = self.active.new_full((), kept(self.numel, sparsity))
        if self._index is not None:
            total -= self.active.sum() - self.active[self._index].sum()
        return total


def _whole_numbers(counts: Tensor) -> Tensor:
    """``counts``, numbers of weights; ValueError for fractions, as a share of ``net.counts`` gives them."""
    if (kind := torch.as_tensor(counts).dtype).is_floating_point:
        raise ValueError(f"counts={kind}: must be whole numbers; round them, as by torch.ceil(counts).long()")
    return counts

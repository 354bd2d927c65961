"""The sparse weights of a model together, and the moves that every method is made of.

A method proposes new masks here; it never touches a weight. The sparsifier opens the proposal and commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from granet.distributions import Distribution, counts, kept
from granet.layers import SparseLayer
from granet.probe import Probe
from granet.scores import Score, random
from granet.selection import Ranking, fill, rank
from granet.transfer import constant, to_device


class SparseNet:
    """Layers with masks, and a proposal for their next masks.

    Numbers of weights are decided first, as integers; selection then fills them exactly. All counts live on the device
    as [layers] int64 tensors, so that proposing and committing never make the host wait for it.
    """

    def __init__(self, layers: Sequence[SparseLayer], floor: int = 1) -> None:
        self.layers = list(layers)
        self.numel = sum(layer.numel for layer in self.layers)
        self.floor = floor
        self.device = self.layers[0].weight.device
        self.active = to_device([layer.numel for layer in self.layers], self.device)
        """Active weights of each layer, as committed."""
        self.start: Mapping[str, Tensor] | None = None
        """The state that the model is to begin with instead of its own; a method may propose it when it begins."""

    probe: Probe
    """Batches, a loss and a finished first run to look at: there only while a method begins."""

    @property
    def shapes(self) -> list[torch.Size]:
        return [layer.weight.shape for layer in self.layers]

    # A proposal is opened at a mask update, moved by the method, then committed.

    def open(self, draw: int, movable: Sequence[SparseLayer], accept: Tensor) -> None:
        """Begin a proposal from the present masks; only ``movable`` layers may change in it.

        Where ``accept`` (a bool tensor without dimensions) is false, every move moves nothing: the device decides
        whether there is an update, and the host need not know.
        """
        self._draw = draw
        self._accept = accept
        self._movable = list(movable)
        self._index = constant([layer.index for layer in movable], self.device)
        self._proposed = _flat_copies([layer.mask for layer in movable])
        self._counts = self.active[self._index]
        self._thinning: tuple[Score, Ranking] | None = None
        self.pruned = constant(0, self.device)
        self.regrown = constant(0, self.device)

    @torch.no_grad()
    def commit(self) -> None:
        """Write the proposal into the masks, in place."""
        self._settle()
        masks = [layer.mask for layer in self._movable]
        flat = [mask.view(-1) if mask.is_contiguous() else mask for mask in masks]
        torch._foreach_copy_(flat, [p.view(mask.shape) for p, mask in zip(self._proposed, flat, strict=True)])
        self.active = self.active.index_copy(0, self._index, self._counts)
        del self._proposed

    # The moves.

    @torch.no_grad()
    def sprout(self, sparsity: float, distribution: Distribution) -> None:
        """Random masks with exact layer counts: where sparse-to-sparse training begins."""
        self._rank(random)
        self._counts = to_device(self.shares(sparsity, distribution), self.device)

    @torch.no_grad()
    def prune_to(self, sparsity: float, score: Score, scope: Distribution | None = None) -> None:
        """Keep the active weights with the largest scores, so that the net has this sparsity.

        ``scope`` says how the layers share what is kept; None ranks all layers together (global pruning). What is
        sparser already is left as it is.
        """
        before = self._counts
        ranking = self._rank(score)
        if scope is None:
            immovable = self.active.sum() - self.active[self._index].sum()
            floors = constant([self.floor] * len(before), self.device)
            budget = ranking.global_counts(kept(self.numel, sparsity) - immovable, floors)
        else:
            shares = to_device(self.shares(sparsity, scope), self.device)[self._index]
            budget = fill(torch.minimum(shares, before), before, shares.sum())  # rounding may ask back what is gone
        self._counts = torch.where(self._accept, budget, before)
        self.pruned = self.pruned + before.sum() - self._counts.sum()

    def proposed(self) -> dict[str, Tensor]:
        """The masks as proposed so far, in the shapes of the weights; not to be written to."""
        self._settle()
        pairs = zip(self._movable, self._proposed, strict=True)
        return {layer.name: mask.view(layer.weight.shape) for layer, mask in pairs}

    @torch.no_grad()
    def regenerate(
        self, ratio: float, drop: Score, grow: Score, rounding: Callable[[Tensor], Tensor] = torch.ceil
    ) -> None:
        """In each layer drop ``ratio`` of the active weights and grow as many.

        The smallest ``drop`` scores go; the largest ``grow`` scores among all inactive weights come, the just dropped
        included. A weight dropped and grown at once was never switched off, so it keeps its value and optimizer state.
        """
        moved = rounding(self._counts.double() * ratio).long() * self._accept
        self._rank(drop)
        self._counts = self._counts - moved
        self._settle()
        rank(self._scores(grow), self._proposed, among=False).select(moved)
        self._counts = self._counts + moved
        self.regrown = self.regrown + moved.sum()

    def shares(self, sparsity: float, distribution: Distribution) -> list[int]:
        """The whole numbers of weights that the layers keep; ValueError if there is no such division."""
        total = kept(self.numel, sparsity)
        return counts(self.shapes, distribution(self.shapes, total / self.numel), total, self.floor)

    # Thinning by one score twice in a row (prune, then drop) is thinning once to the second number, so the selection
    # is put off until a move needs its outcome.

    def _rank(self, score: Score) -> Ranking:
        """The proposed weights by that score, about to be thinned to ``self._counts``."""
        if self._thinning is None or self._thinning[0] is not score:
            self._settle()
            self._thinning = score, rank(self._scores(score), self._proposed, among=True)
        return self._thinning[1]

    def _settle(self) -> None:
        if self._thinning is not None:
            self._thinning[1].select(self._counts)
            self._thinning = None

    def _scores(self, score: Score) -> list[Tensor]:
        return [score(layer, self._draw) for layer in self._movable]


def _flat_copies(masks: Sequence[Tensor]) -> list[Tensor]:
    """A flat copy of each mask, in logical order; those on one device are copied together."""
    copies: dict[int, Tensor] = {}
    for device in {mask.device for mask in masks}:
        here = [i for i, mask in enumerate(masks) if mask.device == device]
        joined = torch.cat([masks[i].reshape(-1) for i in here])
        copies |= zip(here, torch.split(joined, [masks[i].numel() for i in here]), strict=True)
    return [copies[i] for i in range(len(masks))]

"""The sparse weights of a model together, and the moves that every method is made of.

A method proposes new masks here; it never touches a weight. The sparsifier opens the proposal and commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from granet.distributions import Distribution, counts, kept
from granet.division import divide
from granet.layers import SparseLayer, gradients_of, lay_in_a_row
from granet.probe import Probe
from granet.row import Row, row_of, sizes
from granet.scores import Score, gradient, magnitude, random
from granet.selection import Ranking, fill, rank
from granet.transfer import constant, to_device
from granet.units import Units

Scope = Literal["global", "uniform"]
"""Whether pruning ranks all layers together, or each one alone."""


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
        self.memory: dict[str, Tensor] = {}
        """What the method keeps between updates about the net as a whole."""
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
        all_move = len(movable) == len(self.layers)
        self._index = None if all_move else constant([layer.index for layer in movable], self.device)
        masks = self._flat_masks
        self._masks = masks if all_move else [masks[layer.index] for layer in movable]  # written to by commit()
        self._proposed: Sequence[Tensor] = _flat_copies(self._masks)
        self._counts = self._of_movable(self.active)
        self._thinning: tuple[Score, Ranking] | None = None
        self.pruned = self.regrown = constant(0, self.device)

    @torch.no_grad()
    def commit(self) -> None:
        """Write the proposal into the masks, in place."""
        self._settle()
        if isinstance(self._masks, Row) and isinstance(self._proposed, Row):
            self._masks.whole.copy_(self._proposed.whole)
        else:
            shaped = [p.view(mask.shape) for p, mask in zip(self._proposed, self._masks, strict=True)]
            torch._foreach_copy_(list(self._masks), shaped)
        if self._index is None:
            self.active = self._counts
        else:
            self.active = self.active.index_copy(0, self._index, self._counts)
        del self._masks, self._proposed
        if self._tracks_ever_active:
            for layer in self._movable:
                layer.memory["ever_active"].logical_or_(layer.mask)

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
            floors = constant([self.floor] * len(before), self.device)
            budget = ranking.global_counts(self._left_by(sparsity), floors)
        else:
            shares = self._of_movable(to_device(self.shares(sparsity, scope), self.device))
            # Rounding may ask back what is gone.
            budget = self._whole(fill(torch.minimum(shares, before), before, shares.sum()))
        self._counts = torch.where(self._accept, budget, before)
        self.pruned = self.pruned + (before - self._counts).sum()

    @torch.no_grad()
    def keep_nonzero(self) -> None:
        """Switch off what is zero, so that a net that was trained sparse goes on with the masks it had."""
        nonzero = [score.count_nonzero().to(self.device) for score in self._scores(magnitude)]
        self._rank(magnitude)
        self._counts = torch.stack(nonzero) * self._entry_size

    @torch.no_grad()
    def prune_share(self, rate: float, score: Score, scope: Scope) -> None:
        """Switch off ``rate`` of the weights that are left: of all layers together (global), or of each (uniform)."""
        if scope == "uniform":
            self.drop(self._portion(rate, torch.round), score)
            return
        left = int(self._counts.sum())
        self.prune_to(1 - kept(left, rate) / self.numel, score)

    def proposed(self) -> dict[str, Tensor]:
        """The masks as proposed so far, in the shapes of the weights; not to be written to."""
        self._settle()
        pairs = zip(self._movable, self._proposed, strict=True)
        return {layer.name: mask.view(layer.weight.shape) for layer, mask in pairs}

    @torch.no_grad()
    def reselect(self, sparsity: float, score: Score, scope: Distribution | None = None) -> None:
        """As :meth:`prune_to`, but every weight is a candidate: one that was switched off may return.

        ``pruned`` grows by how many fewer weights are active than before, ``regrown`` by how many have returned.
        """
        self._settle()
        masks, counts, pruned = _flat_copies(self._proposed), self._counts, self.pruned
        for mask in self._proposed:
            mask |= self._accept.to(mask.device)
        sizes = constant([layer.numel for layer in self._movable], self.device)
        self._counts = torch.where(self._accept, sizes, counts)
        self.prune_to(sparsity, score, scope)
        self._settle()
        self.pruned = pruned + counts.sum() - self._counts.sum()
        came = [(mask & ~before).sum().to(self.device) for mask, before in zip(self._proposed, masks, strict=True)]
        self.regrown = self.regrown + (torch.stack(came) * self._entry_size).sum()

    @torch.no_grad()
    def recount(self) -> None:
        """Count masks that change by themselves, between updates; nothing is pruned or regrown here."""
        active = torch.stack([mask.count_nonzero().to(self.device) for mask in self._proposed])
        self._counts = active * self._entry_size

    @torch.no_grad()
    def grow_to_floor(self, score: Score) -> None:
        """Give layers with fewer weights than the floor back their best."""
        self._settle()
        missing = (self._floors - self._counts).clamp(min=0)
        self._ranked(score, among=False).select(missing)
        self._counts = self._counts + missing

    @torch.no_grad()
    def regenerate(
        self, ratio: float, drop: Score, grow: Score, rounding: Callable[[Tensor], Tensor] = torch.ceil
    ) -> None:
        """In each layer drop ``ratio`` of the active weights and grow as many.

        The smallest ``drop`` scores go; the largest ``grow`` scores among all inactive weights come, the just dropped
        included. A weight dropped and grown at once was never switched off, so it keeps its value and optimizer state.
        """
        moved = self._portion(ratio, rounding)
        self._rank(drop)
        self._counts = self._counts - moved
        self._grow(moved, grow)  # there is room for as many as have gone

    @torch.no_grad()
    def drop(self, counts: Tensor, score: Score) -> Tensor:
        """Switch off so many weights of each layer, those with the smallest scores; a layer keeps its floor.

        Returns how many went: whole quanta, at most as many as asked.
        """
        going = torch.minimum(counts * self._accept, (self._counts - self._floors).clamp(min=0))
        going = going // self.quanta * self.quanta
        self._rank(score)
        self._counts = self._counts - going
        return going

    @torch.no_grad()
    def remove(self, where: Sequence[Tensor]) -> Tensor:
        """Switch off the active weights at these places of each layer, whatever the floor; returns how many went."""
        self._settle()
        going = []
        for layer, proposed, places in zip(self._movable, self._proposed, where, strict=True):
            entries = self._entries(layer, places).reshape(-1)
            leaving = (proposed & entries).logical_and_(self._accept.to(proposed.device))
            proposed.logical_xor_(leaving)
            going.append(leaving.count_nonzero().to(self.device))
        gone = torch.stack(going) * self._entry_size
        self._counts = self._counts - gone
        return gone

    @torch.no_grad()
    def grow(self, counts: Tensor, score: Score) -> None:
        """Switch on so many inactive weights of each layer, those with the largest scores; at most all there are."""
        self._grow(torch.minimum(counts * self._accept, self.room), score)

    def _grow(self, coming: Tensor, score: Score) -> None:
        self._settle()
        self._ranked(score, among=False).select(coming)
        self._counts = self._counts + coming
        self.regrown = self.regrown + coming.sum()

    def shares(self, sparsity: float, distribution: Distribution) -> list[int]:
        """The whole numbers of weights that the layers keep; ValueError if there is no such division."""
        total = kept(self.numel, sparsity)
        return counts(self.shapes, distribution(self.shapes, total / self.numel), total, self.floor)

    # What a method may want to know before it moves, all [movable layers] tensors.

    @property
    def movable(self) -> list[SparseLayer]:
        """The layers that may change in this proposal."""
        return self._movable

    @property
    def draw(self) -> int:
        """The number of this proposal, for what is random."""
        return self._draw

    @property
    def accept(self) -> Tensor:
        """Whether this proposal may change anything, a bool tensor."""
        return self._accept

    @property
    def counts(self) -> Tensor:
        """Active weights of each layer, as proposed."""
        return self._counts

    @property
    def room(self) -> Tensor:
        """Inactive weights of each layer, as proposed."""
        return constant([layer.numel for layer in self._movable], self.device) - self._counts

    @cached_property
    def _flat_masks(self) -> Sequence[Tensor]:
        """Every layer's mask, flat, or in its own shape where its memory lies in another order."""
        masks = [layer.mask for layer in self.layers]
        flat = [mask.view(-1) if mask.is_contiguous() else mask for mask in masks]
        return row_of(flat) or flat

    def __getstate__(self) -> dict[str, Any]:
        """Without views of the masks, which pickling would cut off from them."""
        return {name: value for name, value in self.__dict__.items() if name != "_flat_masks"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        lay_in_a_row(self.layers)

    def _of_movable(self, numbers: Tensor) -> Tensor:
        """Of numbers for all layers, those of the movable ones."""
        return numbers if self._index is None else numbers[self._index]

    @torch.no_grad()
    def below(self, threshold: Tensor) -> Tensor:
        """Weights of each layer that were active at the start of this proposal and lie below ``threshold`` in size."""
        small = [
            (scores.abs() < threshold.to(scores.device)) & self._entries(layer, layer.mask)
            for layer, scores in zip(self._movable, self._scores(magnitude), strict=True)
        ]
        return torch.stack([places.count_nonzero().to(self.device) for places in small]) * self._entry_size

    @torch.no_grad()
    def mean_size(self, score: Score) -> Tensor:
        """The mean absolute score of the weights of each layer that were active at the start of this proposal."""
        sums = [
            torch.where(self._entries(layer, layer.mask), scores, 0).abs().sum(dtype=torch.float64).to(self.device)
            for layer, scores in zip(self._movable, self._scores(score), strict=True)
        ]
        return torch.stack(sums) * self._entry_size / self._of_movable(self.active).clamp(min=1)

    def lacking(self, sparsity: float) -> Tensor:
        """How many weights are missing to what that sparsity leaves, as proposed."""
        return (self._left_by(sparsity) - self._counts.sum()).clamp(min=0)

    def share_out(self, total: Tensor, shares: Tensor) -> Tensor:
        """So many weights divided among the layers in proportion to ``shares``, as there is room, in whole quanta."""
        return divide(total, shares, self.room, self.quanta)

    def _left_by(self, sparsity: float) -> Tensor:
        """What that sparsity leaves of the movable layers, given the others."""
        total = self.active.new_full((), kept(self.numel, sparsity))
        if self._index is not None:
            total -= self.active.sum() - self.active[self._index].sum()
        return total

    # Every weight that was ever active, for those who ask (ITOP).

    def track_ever_active(self) -> None:
        """From now on remember which weights have been active at some time."""
        for layer in self.layers:
            layer.memory["ever_active"] = torch.zeros_like(layer.mask)

    @property
    def _tracks_ever_active(self) -> bool:
        return "ever_active" in self.layers[0].memory

    @property
    def ever_active(self) -> Tensor | None:
        """How many weights have been active at some time; None if nobody asked to remember."""
        if not self._tracks_ever_active:
            return None
        return torch.stack([layer.memory["ever_active"].count_nonzero().to(self.device) for layer in self.layers]).sum()

    # Thinning by one score twice in a row (prune, then drop) is thinning once to the second number, so the selection
    # is put off until a move needs its outcome.

    def _rank(self, score: Score) -> Ranking:
        """The proposed weights by that score, about to be thinned to ``self._counts``."""
        if self._thinning is None or self._thinning[0] is not score:
            self._settle()
            self._thinning = score, self._ranked(score, among=True)
        return self._thinning[1]

    def _settle(self) -> None:
        if self._thinning is not None:
            self._thinning[1].select(self._counts)
            self._thinning = None

    # What a pattern other than single weights does in its own way.

    def check_mask(self, layer: SparseLayer, mask: Tensor) -> None:
        """ValueError if the layer cannot have that mask."""

    def _scores(self, score: Score) -> Sequence[Tensor]:
        if score is gradient:  # as the row they were kept in: to cut it apart takes longer than to launch the search
            return gradients_of(self._movable)
        return [score(layer, self._draw) for layer in self._movable]

    def _ranked(self, score: Score, among: bool) -> Ranking:
        return rank(self._scores(score), self._proposed, among)

    def _portion(self, ratio: float, rounding: Callable[[Tensor], Tensor]) -> Tensor:
        """That share of each layer's active weights, in double precision."""
        return rounding(self._counts * torch.tensor(ratio, dtype=torch.float64)).long() * self._accept

    @property
    def units(self) -> Units:
        """What is kept or dropped whole."""
        return Units()

    @property
    def quanta(self) -> Tensor:
        """What the number of active weights of each layer is a multiple of."""
        return constant([1] * len(self._movable), self.device)

    @property
    def _floors(self) -> Tensor:
        """What each layer keeps at least, in whole quanta."""
        floors, quanta = constant([min(self.floor, layer.numel) for layer in self._movable], self.device), self.quanta
        return -(-floors // quanta) * quanta

    @property
    def _entry_size(self) -> Tensor:
        """How many weights of each layer an entry of a proposed mask stands for."""
        return constant([1] * len(self._movable), self.device)

    def _entries(self, layer: SparseLayer, mask: Tensor) -> Tensor:
        """A mask of the layer with the entries that a score has."""
        return mask

    def _whole(self, counts: Tensor) -> Tensor:
        """The nearest counts that the layers can have."""
        return counts


def _flat_copies(masks: Sequence[Tensor]) -> Sequence[Tensor]:
    """A flat copy of each mask, in logical order; those on one device are copied together."""
    if isinstance(masks, Row):
        return masks.clone()
    devices = {mask.device for mask in masks}
    if len(devices) == 1:
        flat = [mask if mask.ndim == 1 else mask.flatten() for mask in masks]
        whole = torch.cat(flat)
        return Row(whole, torch.split(whole, list(sizes(flat))))
    return [mask.flatten().clone() for mask in masks]
